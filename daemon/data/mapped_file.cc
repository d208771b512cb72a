#include "daemon/data/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
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

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  [[nodiscard]] int get() const { return fd_; }

 private:
  int fd_;
};

// A signal handler reads it while other threads change it: `begin` is set last and cleared first.
struct Known {
  std::atomic<bool> taken{false};
  std::atomic<const std::byte*> begin{nullptr};
  std::atomic<std::size_t> bytes{0};
  std::array<char, 512> path{};
};
std::array<Known, kMostKnown> known_files;

int Know(const void* data, std::size_t bytes, const std::string& path) {
  for (std::size_t i = 0; i < known_files.size(); ++i) {
    Known& known = known_files[i];
    if (known.taken.exchange(true)) continue;
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

void Forget(int number) {
  if (number < 0) return;
  Known& known = known_files[static_cast<std::size_t>(number)];
  known.begin = nullptr;
  known.taken = false;
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

MappedFile::MappedFile(const void* data, std::size_t bytes, const std::string& path)
    : data_(data), bytes_(bytes), known_(data == nullptr ? -1 : Know(data, bytes, path)) {}

Result<std::shared_ptr<const MappedFile>> MappedFile::Open(const std::string& path) {
  // O_NONBLOCK: opening a FIFO without a writer would wait for ever.
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) return IoError(path, "cannot open the data file");
  struct stat info {};
  if (fstat(file.get(), &info) != 0) return IoError(path, "cannot read the size");
  if (!S_ISREG(info.st_mode)) {
    return Status(ErrorKind::kIo,
                  StrCat(path, ": expected a regular file, found ", KindName(info.st_mode)));
  }
  const auto bytes = static_cast<std::size_t>(info.st_size);
  if (bytes == 0) return std::shared_ptr<const MappedFile>(new MappedFile(nullptr, 0, path));
  void* data = mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (data == MAP_FAILED) return IoError(path, "cannot map the data file");
  return std::shared_ptr<const MappedFile>(new MappedFile(data, bytes, path));
}

MappedFile::~MappedFile() {
  Forget(known_);
  if (data_ != nullptr) munmap(const_cast<void*>(data_), bytes_);
}

}  // namespace gaccd
