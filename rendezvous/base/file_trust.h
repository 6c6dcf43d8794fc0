// Whether another user of the machine may have written what a file says: a token, where to meet.
// The same rule as ssh's StrictModes (sshd_config(5)): the file is this user's or root's, and
// nobody else may write it.
#pragma once

#include <string>

#include <sys/stat.h>

namespace muster {

// Of an opened file, by fstat(2); `user`: geteuid(). Empty: it may be believed; else why not, after
// its name: "belongs to user 1001, not to this one (1000) or root: ...". Pure.
std::string why_untrusted(const struct stat& info, uid_t user);

}  // namespace muster
