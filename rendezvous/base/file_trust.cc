#include "rendezvous/base/file_trust.h"

#include <fmt/format.h>

namespace muster {

std::string why_untrusted(const struct stat& info, uid_t user) {
  if (info.st_uid != user && info.st_uid != 0) {
    return fmt::format(
        "belongs to user {}, not to this one ({}) or root: what it says is not believed",
        info.st_uid, user);
  }
  if ((info.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return fmt::format(
        "can be written by other users (mode {:04o}): what it says is not believed; chmod go-w it",
        info.st_mode & 07777);
  }
  return {};
}

}  // namespace muster
