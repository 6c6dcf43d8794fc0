// Checks that no other user can have written a file, such as a token, by the rule of ssh's
// StrictModes (sshd_config(5)): the file is this user's or root's, and no other user may write it.
#pragma once

#include <string>

#include <sys/stat.h>

namespace muster {

// Returns "" if the file is trusted, else a phrase to follow its name: "belongs to user 1001, not
// to this one (1000) or root: ...". `info`: fstat(2) of the opened file; `user`: geteuid(). Pure.
std::string why_untrusted(const struct stat& info, uid_t user);

}  // namespace muster
