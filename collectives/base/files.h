// Files: open without following links, read within a bound, write so that a reader never sees half
// of one. Errors are kIo, "<what> '<path>': <reason of the system>", unless said otherwise; the
// path is the caller's, also where a temporary file could not be made or written. Functions are
// thread-safe; an object is used by one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "collectives/base/result.h"
#include "collectives/base/ticks.h"

namespace gaccd {

// Modes before the umask: what a run writes is for its user only, unless --group-access.
inline constexpr unsigned kFileMode = 0600;
inline constexpr unsigned kFolderMode = 0700;
struct Modes {
  unsigned file = kFileMode;
  unsigned folder = kFolderMode;
};
inline constexpr Modes kGroupMayRead{0640, 0750};
inline constexpr std::size_t kMaxTextBytes = std::size_t{1} << 20;  // of a text from outside

// An open file descriptor; -1 is none. Move-only.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~FileDescriptor() { (void)Close(); }

  [[nodiscard]] int get() const { return fd_; }
  [[nodiscard]] bool valid() const { return fd_ >= 0; }
  // false: what was written may be lost, errno says why. Closed in any case.
  [[nodiscard]] bool Close();

 private:
  int fd_ = -1;
};

// "`what` '`path`': <errno in words>", kind kIo. Reads errno, so call it first.
Status ErrnoStatus(std::string_view what, const std::string& path);

// open(2) with O_CLOEXEC, O_NOFOLLOW and O_NONBLOCK added: a FIFO does not make it wait.
Result<FileDescriptor> OpenFile(const std::string& path, int flags, unsigned mode = kFileMode);

// Writes all of it, however many calls that takes.
Status WriteAll(int fd, std::string_view text, const std::string& path);
Status WriteAll(int fd, std::span<const std::byte> bytes, const std::string& path);

// A new file "<path>.tmp-..." for writing, never one that was there: nobody can have put it there
// beforehand, and no process of another host has the same.
struct TemporaryFile {
  std::string path;
  FileDescriptor file;
};
Result<TemporaryFile> CreateTemporary(const std::string& path, unsigned mode = kFileMode);

// Writes a temporary file, then renames it over `path`. `durable` also waits for the disk, for
// the file and for its name.
Status ReplaceFile(const std::string& path, std::string_view text, bool durable,
                   unsigned mode = kFileMode);
// The same, but a file that already exists is kept, and true is returned: of many writers, on many
// nodes, exactly one makes it.
Result<bool> CreateFileOnce(const std::string& path, std::string_view text,
                            unsigned mode = kFileMode);

// mkdir -p. An existing folder keeps its mode.
Status MakeFolders(const std::string& path, unsigned mode = kFolderMode);

// Waits until the names in a folder are on the disk.
Status SyncFolder(const std::string& path);
// The folder `path` lies in: "." for a bare name.
[[nodiscard]] std::string FolderOf(const std::string& path);

// What the folder `path` is called, also where that is "." or a link.
[[nodiscard]] std::string FolderName(const std::string& path);

// Whether there is anything under this name, a dead link included.
[[nodiscard]] bool PathExists(const std::string& path);
// Whether it is a folder, or a link to one.
[[nodiscard]] bool IsFolder(const std::string& path);

// The names in a folder, without "." and "..", sorted. kData when there are more than `most`.
Result<std::vector<std::string>> ListFolder(const std::string& path, std::size_t most);
Result<std::vector<std::string>> ListFolder(int fd, const std::string& path, std::size_t most);

// root may change everything anyhow, and this user is who the program works for.
[[nodiscard]] bool IsTrustedOwner(unsigned user);
// A folder that is no link and belongs to this user or root: what is done in it with openat(2) and
// its like stays in it, whatever is put in its place meanwhile.
Result<FileDescriptor> OpenOwnFolder(const std::string& path);

// The first `limit` bytes of a file, or all of it when it is shorter. kIo also when it is not a
// regular file. `path` is only for messages where there is an open one.
Result<std::string> ReadStart(const std::string& path, std::size_t limit);
Result<std::string> ReadStart(int fd, const std::string& path, std::size_t limit);

// A small file from outside, whole; links are followed. kIo also when it is not a regular file;
// `too_large` when it has more than kMaxTextBytes bytes.
Result<std::string> ReadSmallFile(const std::string& path, ErrorKind too_large);

enum class Links : std::uint8_t { kFollow, kRefuse };

// A regular file that is read into the caller's memory, so that nothing which was checked can
// change afterwards.
class InputFile {
 public:
  // kRefuse: also files that belong to neither this user nor root, error kIo with what to do.
  static Result<InputFile> Open(const std::string& path, Links links = Links::kFollow);

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::uint64_t size() const { return size_; }
  // Fills `out`; a file that became shorter meanwhile is an error. `ticks`, which may be null,
  // gets the bytes as they come.
  [[nodiscard]] Status ReadAt(std::uint64_t offset, std::span<std::byte> out,
                              Ticks* ticks = nullptr) const;

 private:
  InputFile(std::string path, FileDescriptor file, std::uint64_t size)
      : path_(std::move(path)), file_(std::move(file)), size_(size) {}

  std::string path_;
  FileDescriptor file_;
  std::uint64_t size_;
};

// Appears under its name only when it is whole and on the disk: write to a temporary name, fsync,
// rename, fsync of the folder. Without Commit() nothing of it remains. After a failed fsync Linux
// forgets what was not written, so a failed file is given up, never tried again.
class DurableFile {
 public:
  static Result<DurableFile> Create(const std::string& path, unsigned mode = kFileMode);
  DurableFile(DurableFile&& other) noexcept
      : path_(std::move(other.path_)),
        temporary_(std::exchange(other.temporary_, {})),
        file_(std::move(other.file_)) {}
  ~DurableFile();

  [[nodiscard]] Status Write(std::span<const std::byte> bytes);
  // Commit() in two steps, for who must look once more between them.
  [[nodiscard]] Status Finish();   // the bytes are on the disk, under the temporary name
  [[nodiscard]] Status Publish();  // the name too. REQUIRES: Finish() succeeded
  [[nodiscard]] Status Commit();

 private:
  DurableFile(std::string path, std::string temporary, FileDescriptor file)
      : path_(std::move(path)), temporary_(std::move(temporary)), file_(std::move(file)) {}

  std::string path_;
  std::string temporary_;  // empty when there is nothing to remove
  FileDescriptor file_;
};

}  // namespace gaccd
