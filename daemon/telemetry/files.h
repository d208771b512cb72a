// Writing small files so that a reader never sees half of one.
#pragma once

#include <string>
#include <string_view>

#include "collectives/base/result.h"

namespace gaccd {

// Modes before the umask: readable by the group, which is how clusters share run folders.
inline constexpr unsigned kFileMode = 0640;
inline constexpr unsigned kFolderMode = 0750;

// An open file descriptor; -1 is none. Move-only.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept;
  FileDescriptor& operator=(FileDescriptor&& other) noexcept;
  ~FileDescriptor();

  [[nodiscard]] int get() const { return fd_; }
  [[nodiscard]] bool valid() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

// "`what` '`path`': <errno in words>", kind kIo. Reads errno, so call it first.
Status ErrnoStatus(std::string_view what, const std::string& path);

// open(2) with O_CLOEXEC and O_NOFOLLOW added.
Result<FileDescriptor> OpenFile(const std::string& path, int flags);

// Writes all of it, however many calls that takes.
Status WriteAll(int fd, std::string_view text, const std::string& path);

// Writes to "<path>.tmp-<pid>", then renames it over `path`. `durable` also waits for the disk.
Status ReplaceFile(const std::string& path, std::string_view text, bool durable);

// mkdir -p.
Status MakeFolders(const std::string& path);

// The first `limit` bytes of a file, or all of it when it is shorter.
Result<std::string> ReadStart(const std::string& path, std::size_t limit);

}  // namespace gaccd
