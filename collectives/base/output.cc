#include "collectives/base/output.h"

#include <limits.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "collectives/base/strings.h"

namespace gaccd {

namespace {

Status CannotPrint() {
  if (errno == EPIPE) return {ErrorKind::kIo, ""};
  return {ErrorKind::kIo, StrCat("cannot write to standard output: ", std::strerror(errno))};
}

}  // namespace

Status PrintOut(std::string_view text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  return written && std::fflush(stdout) == 0 ? Status::Ok() : CannotPrint();
}

Status CheckPrinted() {
  FileDescriptor copy(::dup(STDOUT_FILENO));
  return copy.Close() ? Status::Ok() : CannotPrint();
}

namespace {

constexpr int kMaxLinks = 40;  // the kernel's limit

Status Refuse(const std::string& path, std::string_view found) {
  return {ErrorKind::kIo,
          StrCat("cannot write '", path, "': expected a regular file, found ", found)};
}

Status CheckKind(const std::string& path, mode_t mode) {
  if (S_ISREG(mode)) return Status::Ok();
  if (S_ISDIR(mode)) return Refuse(path, "a folder");
  if (S_ISFIFO(mode)) return Refuse(path, "a FIFO");
  return Refuse(path, S_ISSOCK(mode) ? "a socket" : "a device");
}

// Links in procfs refer to open files, which need not have a name.
bool IsOpenFile(const std::string& link) {
  struct statfs info {};
  return ::statfs(ParentFolder(link).c_str(), &info) == 0 && info.f_type == PROC_SUPER_MAGIC;
}

}  // namespace

Result<std::string> OutputTarget(const std::string& path) {
  if (path.empty() || path.ends_with('/')) return Refuse(path, "no name of a file");
  std::string at = path;
  for (int links = 0;; ++links) {
    struct stat info {};
    if (::lstat(at.c_str(), &info) != 0) {
      if (errno == ENOENT) return at;
      return ErrnoStatus("cannot write", path);
    }
    if (!S_ISLNK(info.st_mode)) {
      GACCD_RETURN_IF_ERROR(CheckKind(path, info.st_mode));
      if (::access(at.c_str(), W_OK) != 0) return ErrnoStatus("cannot write", path);
      return at;
    }
    if (IsOpenFile(at)) return Refuse(path, "an open file of a process");
    if (!IsTrustedOwner(info.st_uid)) {
      return Refuse(path, StrCat("a link made by user ", info.st_uid));
    }
    std::array<char, PATH_MAX> text{};
    const ssize_t size = ::readlink(at.c_str(), text.data(), text.size());
    errno = size < 0 ? errno : ELOOP;
    if (size < 0 || links == kMaxLinks) return ErrnoStatus("cannot write", path);
    const std::string target(text.data(), static_cast<std::size_t>(size));
    at = target.starts_with('/') ? target : StrCat(ParentFolder(at), "/", target);
  }
}

Status CheckOutputFile(const std::string& path) {
  GACCD_ASSIGN_OR_RETURN(const std::string target, OutputTarget(path));
  const auto made = CreateTemporary(target);
  if (made.ok()) {
    ::unlink(made->path.c_str());
    return Status::Ok();
  }
  const std::string folder = ParentFolder(target);
  if (!PathExists(folder)) {
    return {ErrorKind::kIo, StrCat("cannot write '", path, "': there is no folder '", folder, "'")};
  }
  return target == path ? made.status() : Status(made.status()).WithContext(path);
}

Status CheckReplaces(const std::string& path, std::string_view mark, std::string_view what,
                     std::size_t offset) {
  GACCD_ASSIGN_OR_RETURN(const std::string target, OutputTarget(path));
  if (!PathExists(target)) return Status::Ok();
  GACCD_ASSIGN_OR_RETURN(const std::string found, ReadStart(target, offset + mark.size()));
  if (found.empty() || found.substr(std::min(offset, found.size())) == mark) return Status::Ok();
  return {ErrorKind::kIo, StrCat("'", path, "' exists and is not ", what, ": it is not replaced")};
}

Result<TextSink> TextSink::Open(const std::string& out, unsigned mode) {
  TextSink sink;
  if (out.empty()) return sink;
  GACCD_ASSIGN_OR_RETURN(sink.path_, OutputTarget(out));
  GACCD_ASSIGN_OR_RETURN(sink.file_, CreateTemporary(sink.path_, mode));
  // Not for the user only: the umask must not make it so.
  const bool shared = mode != kFileMode;
  if (shared && ::fchmod(sink.file_->file.get(), mode) != 0) {
    return ErrnoStatus("cannot make readable for all", sink.path_);
  }
  return sink;
}

TextSink::TextSink(TextSink&& other) noexcept
    : path_(std::move(other.path_)),
      file_(std::exchange(other.file_, std::nullopt)),
      text_(std::move(other.text_)) {}

TextSink::~TextSink() {
  if (file_) ::unlink(file_->path.c_str());
}

Status TextSink::Write(std::string_view text) {
  constexpr std::size_t kPiece = std::size_t{256} << 10;
  text_ += text;
  return text_.size() < kPiece ? Status() : Flush();
}

Status TextSink::Flush() {
  const Status status = file_ ? WriteAll(file_->file.get(), text_, path_) : PrintOut(text_);
  text_.clear();
  return status;
}

Status TextSink::Close() {
  GACCD_RETURN_IF_ERROR(Flush());
  if (!file_) return {};
  if (!file_->file.Close()) return ErrnoStatus("cannot write", path_);
  if (std::rename(file_->path.c_str(), path_.c_str()) != 0) {
    return ErrnoStatus("cannot replace", path_);
  }
  file_.reset();
  return {};
}

}  // namespace gaccd
