#include "daemon/data/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <ctime>
#include <system_error>

#include "collectives/base/strings.h"

namespace gaccd {
namespace {

Status IoError(const std::string& path, std::string_view what) {
  return {ErrorKind::kIo, StrCat(path, ": ", what, ": ", std::generic_category().message(errno))};
}

std::string_view KindName(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

std::string SizeAndTime(const struct stat& info) {
  struct tm utc {};
  gmtime_r(&info.st_mtim.tv_sec, &utc);
  std::array<char, 64> text{};
  const std::size_t end = std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%S", &utc);
  std::snprintf(text.data() + end, text.size() - end, ".%09ldZ", info.st_mtim.tv_nsec);
  return StrCat(info.st_size, " bytes, written at ", text.data());
}

// Read by signal handlers while other threads change it: `begin` is set last and cleared first.
struct Known {
  std::atomic<const std::byte*> begin{nullptr};
  std::atomic<std::size_t> bytes{0};
  std::array<char, 512> path{};
};
std::array<Known, kMaxKnown> known_files;
std::array<std::atomic<bool>, kMaxKnown> taken;  // apart, as it is searched for a free entry

int RegisterFile(const void* data, std::size_t bytes, const std::string& path) {
  for (std::size_t i = 0; i < known_files.size(); ++i) {
    if (taken[i].load(std::memory_order_relaxed) || taken[i].exchange(true)) continue;
    Known& known = known_files[i];
    const std::size_t length = std::min(path.size(), known.path.size() - 1);
    for (std::size_t c = 0; c < length; ++c) {
      const bool plain = path[c] >= ' ' && path[c] <= '~' && path[c] != '"' && path[c] != '\\';
      known.path[c] = plain ? path[c] : '?';
    }
    known.path[length] = '\0';
    known.bytes = bytes;
    known.begin = static_cast<const std::byte*>(data);
    return static_cast<int>(i);
  }
  return -1;
}

void UnregisterFile(int number) {
  if (number < 0) return;
  known_files[static_cast<std::size_t>(number)].begin = nullptr;
  taken[static_cast<std::size_t>(number)] = false;
}

}  // namespace

MappedPlace FindMapped(const void* address) {
  const auto* at = static_cast<const std::byte*>(address);
  for (const Known& known : known_files) {
    const std::byte* begin = known.begin;
    if (begin == nullptr || at < begin || at >= begin + known.bytes) continue;
    return {.path = known.path.data(), .byte = at - begin};
  }
  return {};
}

Result<std::shared_ptr<const MappedFile>> MappedFile::Open(const std::string& path) {
  std::shared_ptr<MappedFile> file(new MappedFile(path));
  // O_NONBLOCK: opening a FIFO without a writer would block.
  file->fd_ = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file->fd_ < 0) return IoError(path, "cannot open the data file");
  if (fstat(file->fd_, &file->opened_) != 0) return IoError(path, "cannot read the size");
  if (!S_ISREG(file->opened_.st_mode)) {
    return Status(ErrorKind::kIo, StrCat(path, ": expected a regular file, found ",
                                         KindName(file->opened_.st_mode)));
  }
  const auto bytes = static_cast<std::size_t>(file->opened_.st_size);
  if (bytes > 0) {
    void* data = mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, file->fd_, 0);
    if (data == MAP_FAILED) return IoError(path, "cannot map the data file");
    file->data_ = data;
    file->known_ = RegisterFile(data, bytes, path);
  }
  return std::shared_ptr<const MappedFile>(std::move(file));
}

Status MappedFile::CheckUnchanged() const {
  struct stat now {};
  if (fstat(fd_, &now) != 0) return IoError(path_, "cannot check the data file");
  if (now.st_size != opened_.st_size || now.st_mtim.tv_sec != opened_.st_mtim.tv_sec ||
      now.st_mtim.tv_nsec != opened_.st_mtim.tv_nsec) {
    return {ErrorKind::kData, StrCat(path_, ": was changed while in use: expected ",
                                     SizeAndTime(opened_), ", found ", SizeAndTime(now))};
  }
  if (stat(path_.c_str(), &now) != 0) return Status::Ok();  // removed
  if (now.st_ino == opened_.st_ino && now.st_dev == opened_.st_dev) return Status::Ok();
  return {ErrorKind::kData,
          StrCat(path_, ": was replaced while in use: expected inode ", opened_.st_ino,
                 " of device ", opened_.st_dev, ", found ", now.st_ino, " of ", now.st_dev)};
}

MappedFile::~MappedFile() {
  UnregisterFile(known_);
  if (data_ != nullptr) munmap(const_cast<void*>(data_), bytes().size());
  if (fd_ >= 0) close(fd_);
}

}  // namespace gaccd
