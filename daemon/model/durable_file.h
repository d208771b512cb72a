// Files that are read or written whole, with the failures a disk can have.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "collectives/base/result.h"

namespace gaccd {

// A file descriptor that is closed at the end.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&&) = delete;
  ~Descriptor() { (void)Close(); }

  [[nodiscard]] int get() const { return fd_; }
  [[nodiscard]] bool Close();  // false: errno says why

 private:
  int fd_;
};

// A regular file that is read into the caller's memory, so that nothing which was checked can
// change afterwards. Errors: kIo with the file and the reason.
class InputFile {
 public:
  static Result<InputFile> Open(const std::string& path);

  [[nodiscard]] std::uint64_t size() const { return size_; }
  // Fills `out`; a file that became shorter meanwhile is an error.
  [[nodiscard]] Status ReadAt(std::uint64_t offset, std::span<std::byte> out) const;

 private:
  InputFile(std::string path, Descriptor file, std::uint64_t size)
      : path_(std::move(path)), file_(std::move(file)), size_(size) {}

  std::string path_;
  Descriptor file_;
  std::uint64_t size_;
};

// Appears under its name only when it is whole and on the disk: write to a temporary name, fsync,
// rename, fsync of the folder. Without Commit() nothing of it remains.
class DurableFile {
 public:
  static Result<DurableFile> Create(const std::string& path);
  DurableFile(DurableFile&& other) noexcept = default;
  ~DurableFile();

  [[nodiscard]] Status Write(std::span<const std::byte> bytes);
  [[nodiscard]] Status Commit();

 private:
  DurableFile(std::string path, std::string temporary, Descriptor file)
      : path_(std::move(path)), temporary_(std::move(temporary)), file_(std::move(file)) {}

  std::string path_;
  std::string temporary_;  // empty when there is nothing to remove
  Descriptor file_;
};

}  // namespace gaccd
