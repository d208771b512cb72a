#include "daemon/data/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

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

}  // namespace

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
  if (bytes == 0) return std::shared_ptr<const MappedFile>(new MappedFile(nullptr, 0));
  void* data = mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (data == MAP_FAILED) return IoError(path, "cannot map the data file");
  return std::shared_ptr<const MappedFile>(new MappedFile(data, bytes));
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<void*>(data_), bytes_);
}

}  // namespace gaccd
