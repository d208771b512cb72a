#include "daemon/telemetry/safe_place.h"

#include <limits.h>
#include <pwd.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <vector>

#include "collectives/base/files.h"
#include "collectives/base/strings.h"

namespace gaccd {
namespace {

bool IsTrusted(uid_t owner) { return owner == 0 || owner == ::geteuid(); }

std::string UserName(uid_t user) {
  passwd entry{};
  passwd* found = nullptr;
  std::vector<char> memory(16'384);
  if (::getpwuid_r(user, &entry, memory.data(), memory.size(), &found) != 0 || found == nullptr) {
    return StrCat("user ", user);
  }
  return entry.pw_name;
}

std::string ModeText(mode_t mode) {
  std::array<char, 16> text{};
  std::snprintf(text.data(), text.size(), "%04o", static_cast<unsigned>(mode & 07777));
  return text.data();
}

Status CheckFolder(const std::string& path, const struct stat& info) {
  if (S_ISLNK(info.st_mode)) {
    if (IsTrusted(info.st_uid)) return Status::Ok();
    return {ErrorKind::kConfig, StrCat("'", path, "' is a link made by ", UserName(info.st_uid),
                                       "; give the folder itself as --run-dir")};
  }
  const bool anybody = (info.st_mode & S_IWOTH) != 0 && (info.st_mode & S_ISVTX) == 0;
  if (!anybody || IsTrusted(info.st_uid)) return Status::Ok();
  return {ErrorKind::kConfig,
          StrCat("'", path, "' belongs to ", UserName(info.st_uid), " and has mode ",
                 ModeText(info.st_mode),
                 ": everybody may replace what is in it. Expected a folder that only you and its "
                 "owner can change, or a sticky one (chmod +t); choose another --run-dir")};
}

// Every prefix of an absolute path, from the root down.
Status CheckEveryPart(const std::string& path) {
  for (std::size_t end = path.find('/', 1); !path.empty(); end = path.find('/', end + 1)) {
    const std::string part = path.substr(0, end);
    struct stat info {};
    if (::lstat(part.c_str(), &info) != 0) return ErrnoStatus("cannot look at", part);
    GACCD_RETURN_IF_ERROR(CheckFolder(part, info));
    if (end == std::string::npos) break;
  }
  return Status::Ok();
}

}  // namespace

Status CheckSafePlace(const std::string& path) {
  std::array<char, PATH_MAX> resolved{};
  if (::realpath(path.c_str(), resolved.data()) == nullptr) {
    return ErrnoStatus("cannot find", path);
  }
  struct stat last {};  // realpath() has hidden whose link the folder itself may be
  if (::lstat(path.c_str(), &last) != 0) return ErrnoStatus("cannot look at", path);
  GACCD_RETURN_IF_ERROR(CheckFolder(path, last));
  return CheckEveryPart(resolved.data());
}

}  // namespace gaccd
