#include "daemon/rundir/safe_place.h"

#include <limits.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <functional>
#include <string_view>
#include <utility>
#include <vector>

#include "collectives/base/files.h"
#include "collectives/base/strings.h"

namespace gaccd {
namespace {

constexpr int kMaxLinks = 40;  // the kernel's limit

std::string UserName(uid_t user) {
  passwd entry{};
  passwd* found = nullptr;
  std::vector<char> memory(16'384);
  if (::getpwuid_r(user, &entry, memory.data(), memory.size(), &found) != 0 || found == nullptr) {
    return StrCat("user ", user);
  }
  return entry.pw_name;
}

std::string ModeText(mode_t mode) { return Format("%04o", mode & 07777); }

Status CheckFolder(const std::string& path, const struct stat& info) {
  if (S_ISLNK(info.st_mode)) {
    if (IsTrustedOwner(info.st_uid)) return Status::Ok();
    return {ErrorKind::kConfig, StrCat("'", path, "' is a link made by ", UserName(info.st_uid),
                                       "; give the folder itself as --run-dir")};
  }
  const bool anybody = (info.st_mode & S_IWOTH) != 0 && (info.st_mode & S_ISVTX) == 0;
  if (!anybody || IsTrustedOwner(info.st_uid)) return Status::Ok();
  return {ErrorKind::kConfig,
          StrCat("'", path, "' belongs to ", UserName(info.st_uid), " and has mode ",
                 ModeText(info.st_mode),
                 ": every user may replace its content; expected a folder that only you and its "
                 "owner can change, or a sticky one (chmod +t); choose another --run-dir")};
}

// The components of a path in reverse order: processed from the back.
void PushParts(std::string_view path, std::vector<std::string>* parts) {
  for (std::size_t end = path.size(); end > 0;) {
    const std::size_t slash = path.rfind('/', end - 1);
    const std::size_t begin = slash == std::string_view::npos ? 0 : slash + 1;
    if (end > begin) parts->emplace_back(path.substr(begin, end - begin));
    end = slash == std::string_view::npos ? 0 : slash;
  }
}

Result<std::string> ReadLink(const std::string& link) {
  std::array<char, PATH_MAX> target{};
  const ssize_t size = ::readlink(link.c_str(), target.data(), target.size());
  if (size < 0) return ErrnoStatus("cannot read link", link);
  return std::string(target.data(), static_cast<std::size_t>(size));
}

using CheckPart = std::function<Status(const std::string& path, const struct stat& info)>;

// Resolves `path` component by component, including links and their targets: realpath(3) would not
// tell their owners. Empty: it does not exist. Stops at the first error of `check`.
Result<std::string> Resolve(const std::string& path, const CheckPart& check) {
  std::vector<std::string> parts;
  PushParts(path, &parts);
  if (!path.starts_with('/')) {
    std::array<char, PATH_MAX> here{};
    if (::getcwd(here.data(), here.size()) == nullptr) return ErrnoStatus("cannot find", path);
    PushParts(here.data(), &parts);
  }
  std::string at;  // "" is the root
  for (int links = 0; !parts.empty();) {
    const std::string part = std::move(parts.back());
    parts.pop_back();
    if (part == ".") continue;
    if (part == "..") {
      at.resize(at.empty() ? 0 : at.rfind('/'));
      continue;
    }
    const std::string next = StrCat(at, "/", part);
    struct stat info {};
    if (::lstat(next.c_str(), &info) != 0) {
      if (errno == ENOENT) return std::string();
      if (errno == ENOTDIR) {
        return Status(ErrorKind::kIo, StrCat("'", at, "' is a file, expected a folder"));
      }
      return ErrnoStatus("cannot examine", next);
    }
    GACCD_RETURN_IF_ERROR(check(next, info));
    if (!S_ISLNK(info.st_mode)) {
      at = next;
      continue;
    }
    errno = ELOOP;
    if (++links > kMaxLinks) return ErrnoStatus("cannot find", path);
    GACCD_ASSIGN_OR_RETURN(const std::string target, ReadLink(next));
    if (target.starts_with('/')) at.clear();
    PushParts(target, &parts);
  }
  return at.empty() ? std::string("/") : at;
}

Status CheckOwner(const std::string& path) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) return ErrnoStatus("cannot examine", path);
  if (IsTrustedOwner(info.st_uid)) return Status::Ok();
  return {ErrorKind::kConfig,
          StrCat("'", path, "' belongs to ", UserName(info.st_uid), ", expected ",
                 UserName(::geteuid()), " or root; choose another --run-dir")};
}

Status CheckNotReplaceable(const std::string& path, const struct stat& info) {
  constexpr uid_t kNobodyKnown = 65'534;
  if (S_ISLNK(info.st_mode)) return Status::Ok();
  const bool anybody = (info.st_mode & S_IWOTH) != 0 && (info.st_mode & S_ISVTX) == 0;
  const bool theirs = !IsTrustedOwner(info.st_uid) && info.st_uid != kNobodyKnown;
  if (!anybody && !theirs) return Status::Ok();
  return {ErrorKind::kConfig,
          StrCat("'", path, "' belongs to ", UserName(info.st_uid), " and has mode ",
                 ModeText(info.st_mode), ": ", anybody ? "everybody" : "its owner",
                 " can replace its content, this run included")};
}

}  // namespace

Status CheckSafePlace(const std::string& path) {
  GACCD_ASSIGN_OR_RETURN(const std::string found, Resolve(path, CheckFolder));
  return found.empty() ? Status::Ok() : CheckOwner(found);
}

Status CheckSafeRunFolder(const std::string& run_dir) {
  for (const char* inside : {"", "/attempts", "/ckpt"}) {
    GACCD_RETURN_IF_ERROR(CheckSafePlace(run_dir + inside).WithContext("run folder"));
  }
  return Status::Ok();
}

std::string RunFolderWarning(const std::string& run_dir) {
  const auto found = Resolve(run_dir, CheckNotReplaceable);
  const bool doubt = !found.ok() && found.status().kind() == ErrorKind::kConfig;
  return doubt ? found.status().message() : std::string();
}

}  // namespace gaccd
