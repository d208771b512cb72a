// Files: opening without following links, reading with a size limit, atomic writing. Errors are
// kIo, "<what> '<path>': <system message>", unless stated otherwise; the path is always the
// caller's, also if a temporary file failed. Functions are thread-safe; objects are used by one
// thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "collectives/base/result.h"
#include "collectives/base/ticks.h"

namespace gaccd {

// Modes before the umask: files of a run are for its user only, unless --group-access is set.
inline constexpr unsigned kFileMode = 0600;
inline constexpr unsigned kFolderMode = 0700;
struct Modes {
  unsigned file = kFileMode;
  unsigned folder = kFolderMode;
};
inline constexpr Modes kGroupMayRead{0640, 0750};
inline constexpr std::size_t kMaxTextBytes = std::size_t{1} << 20;  // limit for texts from outside

// An open file descriptor; -1: none. Move-only.
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
  // false: written data may be lost, see errno. Closes in any case.
  [[nodiscard]] bool Close();

 private:
  int fd_ = -1;
};

// "`what` '`path`': <message of errno>", kind kIo. Reads errno, so call it before anything else.
Status ErrnoStatus(std::string_view what, const std::string& path);

// open(2) with O_CLOEXEC, O_NOFOLLOW and O_NONBLOCK: does not block on a FIFO.
Result<FileDescriptor> OpenFile(const std::string& path, int flags, unsigned mode = kFileMode);

// Writes everything, with as many calls as needed.
Status WriteAll(int fd, std::string_view text, const std::string& path);
Status WriteAll(int fd, std::span<const std::byte> bytes, const std::string& path);

// Appends `line`, which ends with a newline, durably; mode: for a new file. A last line that a
// crash truncated is ended first, so that it does not absorb this one.
Status AppendLine(const std::string& path, std::string line, unsigned mode = kFileMode);

// A new file "<path>.tmp-..." for writing, never an existing one: nobody can have placed it there
// beforehand, and its name is unique across hosts.
struct TemporaryFile {
  std::string path;
  FileDescriptor file;
};
Result<TemporaryFile> CreateTemporary(const std::string& path, unsigned mode = kFileMode);

// Writes a temporary file and renames it over `path`. durable: also waits until the file and its
// name are on disk.
Status ReplaceFile(const std::string& path, std::string_view text, bool durable,
                   unsigned mode = kFileMode);
// The same, but keeps an existing file and then returns true: of many writers on many nodes,
// exactly one creates it.
Result<bool> CreateFileOnce(const std::string& path, std::string_view text,
                            unsigned mode = kFileMode);

// mkdir -p. The mode of an existing folder is not changed.
Status MakeFolders(const std::string& path, unsigned mode = kFolderMode);

// Waits until the names in a folder are on disk.
Status SyncFolder(const std::string& path);
// The folder that contains `path`: "." for a bare name.
[[nodiscard]] std::string ParentFolder(const std::string& path);

// The absolute path of a file that need not exist, without "." and "..". A link that is followed by
// ".." is replaced by its target, as otherwise another file would be meant; other links stay.
[[nodiscard]] std::string AbsolutePath(const std::string& path);

// The name of the folder `path`, also if `path` is "." or a link.
[[nodiscard]] std::string FolderName(const std::string& path);

// Whether the name exists; true for a dead link.
[[nodiscard]] bool PathExists(const std::string& path);
// Whether it is a folder, or a link to one.
[[nodiscard]] bool IsFolder(const std::string& path);

// The names in a folder, without "." and "..", sorted. kData if there are more than `max_entries`.
Result<std::vector<std::string>> ListFolder(const std::string& path, std::size_t max_entries);
Result<std::vector<std::string>> ListFolder(int fd, const std::string& path,
                                            std::size_t max_entries);

// Whether `user` is root or this user.
[[nodiscard]] bool IsTrustedOwner(unsigned user);
// Opens a folder that is not a link and belongs to this user or root. Operations relative to the
// descriptor (openat(2)) stay in it even if the path is replaced.
Result<FileDescriptor> OpenOwnFolder(const std::string& path);

// The first `limit` bytes of a file, or all of a shorter one. kIo also if it is not a regular file.
// With `fd`, `path` is only for messages.
Result<std::string> ReadStart(const std::string& path, std::size_t limit);
Result<std::string> ReadStart(int fd, const std::string& path, std::size_t limit);

// The content of a small file from outside; follows links. kIo also if it is not a regular file;
// `too_large` if it has more than kMaxTextBytes bytes.
Result<std::string> ReadSmallFile(const std::string& path, ErrorKind too_large);

enum class Links : std::uint8_t { kFollow, kRefuse };

// A regular file whose content is read into memory of the caller, so that checked data cannot
// change afterwards.
class InputFile {
 public:
  // kRefuse: also rejects files that belong to neither this user nor root, error kIo with advice.
  static Result<InputFile> Open(const std::string& path, Links links = Links::kFollow);

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::uint64_t size() const { return size_; }
  // Fills `out`; an error if the file became shorter. `ticks`, which may be null, is called with
  // the bytes as they arrive.
  [[nodiscard]] Status ReadAt(std::uint64_t offset, std::span<std::byte> out,
                              Ticks* ticks = nullptr) const;

 private:
  InputFile(std::string path, FileDescriptor file, std::uint64_t size)
      : path_(std::move(path)), file_(std::move(file)), size_(size) {}

  std::string path_;
  FileDescriptor file_;
  std::uint64_t size_;
};

// A file that appears under its name only when it is complete and on disk: write to a temporary
// name, fsync, rename, fsync of the folder. Without Commit() the temporary file is removed. After a
// failed fsync Linux drops unwritten data, so a failed file is never retried.
class DurableFile {
 public:
  static Result<DurableFile> Create(const std::string& path, unsigned mode = kFileMode);
  DurableFile(DurableFile&& other) noexcept
      : path_(std::move(other.path_)),
        temporary_(std::exchange(other.temporary_, {})),
        file_(std::move(other.file_)) {}
  ~DurableFile();

  [[nodiscard]] Status Write(std::span<const std::byte> bytes);
  // Commit() in two steps, for callers that check something in between.
  [[nodiscard]] Status Finish();   // syncs the content under the temporary name
  [[nodiscard]] Status Publish();  // renames and syncs the folder. REQUIRES: Finish() succeeded
  [[nodiscard]] Status Commit();

 private:
  DurableFile(std::string path, std::string temporary, FileDescriptor file)
      : path_(std::move(path)), temporary_(std::move(temporary)), file_(std::move(file)) {}

  std::string path_;
  std::string temporary_;  // empty if there is nothing to remove
  FileDescriptor file_;
};

// Paths with a '*' in the file name, which match several files.

// Whether the file name has a '*'. One in the name of a folder is a part of that name.
[[nodiscard]] inline bool IsPattern(std::string_view path) {
  return path.find('*', path.rfind('/') + 1) != std::string_view::npos;
}

// The paths of the matching files, keyed by the text that matches the first '*'; empty if there is
// none, or the folder does not exist. kIo: the folder cannot be read; kData: it has more than 2^20
// entries.
Result<std::map<std::string, std::string>> Glob(const std::string& pattern);

}  // namespace gaccd
