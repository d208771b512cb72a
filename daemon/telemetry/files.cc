#include "daemon/telemetry/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <system_error>
#include <utility>

#include "collectives/base/strings.h"

namespace gaccd {

FileDescriptor::FileDescriptor(FileDescriptor&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)) {}

FileDescriptor& FileDescriptor::operator=(FileDescriptor&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

FileDescriptor::~FileDescriptor() {
  if (fd_ >= 0) ::close(fd_);
}

Status ErrnoStatus(std::string_view what, const std::string& path) {
  const int error = errno;
  return {ErrorKind::kIo, StrCat(what, " '", path, "': ", std::generic_category().message(error))};
}

Result<FileDescriptor> OpenFile(const std::string& path, int flags) {
  FileDescriptor file(::open(path.c_str(), flags | O_CLOEXEC | O_NOFOLLOW, kFileMode));
  if (!file.valid()) return ErrnoStatus("cannot open", path);
  return file;
}

Status WriteAll(int fd, std::string_view text, const std::string& path) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return ErrnoStatus("cannot write", path);
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return Status::Ok();
}

Status ReplaceFile(const std::string& path, std::string_view text, bool durable) {
  const std::string temporary = StrCat(path, ".tmp-", ::getpid());
  GACCD_ASSIGN_OR_RETURN(const FileDescriptor file,
                         OpenFile(temporary, O_WRONLY | O_CREAT | O_TRUNC));
  Status status = WriteAll(file.get(), text, temporary);
  if (status.ok() && durable && ::fsync(file.get()) != 0) {
    status = ErrnoStatus("cannot write", temporary);
  }
  if (status.ok() && std::rename(temporary.c_str(), path.c_str()) != 0) {
    status = ErrnoStatus("cannot replace", path);
  }
  if (!status.ok()) ::unlink(temporary.c_str());
  return status;
}

Status MakeFolders(const std::string& path) {
  for (std::size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
    const std::string part = path.substr(0, end);
    if (::mkdir(part.c_str(), kFolderMode) != 0 && errno != EEXIST) {
      // A parent may be read-only and there all the same; what counts is the last part.
      if (end == std::string::npos || errno == ENOTDIR || errno == ELOOP) {
        return ErrnoStatus("cannot create folder", part);
      }
    }
    if (end == std::string::npos) break;
  }
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return ErrnoStatus("cannot create folder", path);
  if (!S_ISDIR(info.st_mode)) {
    errno = ENOTDIR;
    return ErrnoStatus("cannot create folder", path);
  }
  return Status::Ok();
}

Result<std::string> ReadStart(const std::string& path, std::size_t limit) {
  GACCD_ASSIGN_OR_RETURN(const FileDescriptor file, OpenFile(path, O_RDONLY));
  std::string text(limit, '\0');
  std::size_t size = 0;
  while (size < limit) {
    const ssize_t got = ::read(file.get(), text.data() + size, limit - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoStatus("cannot read", path);
    if (got == 0) break;
    size += static_cast<std::size_t>(got);
  }
  text.resize(size);
  return text;
}

}  // namespace gaccd
