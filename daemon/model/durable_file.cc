#include "daemon/model/durable_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "collectives/base/strings.h"

namespace gaccd {
namespace {

Status IoError(const std::string& path, std::string_view what) {
  return {ErrorKind::kIo, StrCat(path, ": ", what, ": ", std::generic_category().message(errno))};
}

}  // namespace

bool Descriptor::Close() {
  const int fd = std::exchange(fd_, -1);
  return fd < 0 || close(fd) == 0;
}

Result<InputFile> InputFile::Open(const std::string& path) {
  // O_NONBLOCK: opening a FIFO without a writer would wait for ever.
  Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) return IoError(path, "cannot open the file");
  struct stat info {};
  if (fstat(file.get(), &info) != 0) return IoError(path, "cannot read the size");
  if (!S_ISREG(info.st_mode)) {
    return Status(ErrorKind::kIo,
                  StrCat(path, ": expected a regular file, found ",
                         S_ISDIR(info.st_mode) ? "a directory" : "a FIFO, socket or device"));
  }
  return InputFile(path, std::move(file), static_cast<std::uint64_t>(info.st_size));
}

Status InputFile::ReadAt(std::uint64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t got = pread(file_.get(), out.data(), out.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return IoError(path_, StrCat("cannot read at byte ", offset));
    if (got == 0) {
      return {ErrorKind::kIo, StrCat(path_, ": expected ", size_, " bytes, found its end at ",
                                     offset, ": it became shorter while it was read")};
    }
    out = out.subspan(static_cast<std::size_t>(got));
    offset += static_cast<std::uint64_t>(got);
  }
  return Status::Ok();
}

Result<DurableFile> DurableFile::Create(const std::string& path) {
  const std::string temporary = StrCat(path, ".tmp.", getpid());
  Descriptor file(open(temporary.c_str(),
                       O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0666));
  if (file.get() < 0) return IoError(temporary, "cannot create the file");
  return DurableFile(path, temporary, std::move(file));
}

DurableFile::~DurableFile() {
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

Status DurableFile::Write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(file_.get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return IoError(temporary_, "cannot write");
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return Status::Ok();
}

Status DurableFile::Commit() {
  if (fsync(file_.get()) != 0) return IoError(temporary_, "cannot make the file durable");
  if (!file_.Close()) return IoError(temporary_, "cannot close the file");
  if (rename(temporary_.c_str(), path_.c_str()) != 0) {
    return IoError(path_, "cannot give the file its name");
  }
  temporary_.clear();
  const std::string folder = std::filesystem::path(path_).parent_path() / ".";
  const Descriptor directory(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory.get() < 0 || fsync(directory.get()) != 0) {
    return IoError(folder, "cannot make the folder durable");
  }
  return Status::Ok();
}

}  // namespace gaccd
