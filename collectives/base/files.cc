#include "collectives/base/files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <system_error>

#include "collectives/base/strings.h"

namespace gaccd {
namespace {

// Succeeds for a regular file and fills `info`.
Status StatRegularFile(int fd, const std::string& path, struct stat* info) {
  if (::fstat(fd, info) != 0) return ErrnoStatus("cannot read", path);
  if (S_ISREG(info->st_mode)) return Status::Ok();
  return {ErrorKind::kIo,
          StrCat("cannot read '", path, "': expected a regular file, found ",
                 S_ISDIR(info->st_mode) ? "a directory" : "a FIFO, socket or device")};
}

// Some file systems have no hard links.
bool MeansNoLinks(int error) { return error == EPERM || error == EOPNOTSUPP || error == ENOSYS; }

// As link(2), for such file systems: an empty file takes the name, which one of many writers can,
// and is replaced. Readers may see it.
bool TakeName(const std::string& temporary, const std::string& path, unsigned mode) {
  // Closed before rename(): SMB servers do not replace an open file.
  if (!OpenFile(path, O_WRONLY | O_CREAT | O_EXCL, mode).ok()) return false;
  if (std::rename(temporary.c_str(), path.c_str()) == 0) return true;
  const int error = errno;
  ::unlink(path.c_str());  // empty, it would count as written
  errno = error;
  return false;
}

}  // namespace

bool FileDescriptor::Close() {
  const int fd = std::exchange(fd_, -1);
  return fd < 0 || ::close(fd) == 0;
}

Status ErrnoStatus(std::string_view what, const std::string& path) {
  const int error = errno;
  return {ErrorKind::kIo, StrCat(what, " '", path, "': ", std::generic_category().message(error))};
}

Result<FileDescriptor> OpenFile(const std::string& path, int flags, unsigned mode) {
  FileDescriptor file(::open(path.c_str(), flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, mode));
  if (!file.valid()) return ErrnoStatus("cannot open", path);
  return file;
}

Status WriteAll(int fd, std::string_view text, const std::string& path) {
  return WriteAll(fd, std::as_bytes(std::span(text)), path);
}

Status WriteAll(int fd, std::span<const std::byte> bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return ErrnoStatus("cannot write", path);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return Status::Ok();
}

Status AppendLine(const std::string& path, std::string line, unsigned mode) {
  GACCD_ASSIGN_OR_RETURN(const FileDescriptor file,
                         OpenFile(path, O_RDWR | O_APPEND | O_CREAT, mode));
  const off_t size = ::lseek(file.get(), 0, SEEK_END);
  char last = '\n';
  if (size > 0 && ::pread(file.get(), &last, 1, size - 1) == 1 && last != '\n') line = "\n" + line;
  GACCD_RETURN_IF_ERROR(WriteAll(file.get(), line, path));
  return ::fsync(file.get()) == 0 ? Status::Ok() : ErrnoStatus("cannot write", path);
}

Result<TemporaryFile> CreateTemporary(const std::string& path, unsigned mode) {
  constexpr int kMaxTries = 16;
  for (int tries = 1;; ++tries) {
    // Unique across processes of several hosts with the same pid and across threads of this
    // process.
    const auto now = std::chrono::system_clock::now().time_since_epoch().count();
    std::string name = StrCat(path, ".tmp-", ::getpid(), "-", ::gettid(), "-", now);
    auto file = OpenFile(name, O_WRONLY | O_CREAT | O_EXCL, mode);
    if (file.ok()) return TemporaryFile{std::move(name), *std::move(file)};
    if (errno != EEXIST || tries == kMaxTries) return ErrnoStatus("cannot create", path);
  }
}

Status ReplaceFile(const std::string& path, std::string_view text, bool durable, unsigned mode) {
  if (durable) {
    GACCD_ASSIGN_OR_RETURN(DurableFile file, DurableFile::Create(path, mode));
    GACCD_RETURN_IF_ERROR(file.Write(std::as_bytes(std::span(text))));
    return file.Commit();
  }
  GACCD_ASSIGN_OR_RETURN(TemporaryFile made, CreateTemporary(path, mode));
  auto& [temporary, file] = made;
  Status status = WriteAll(file.get(), text, path);
  if (!file.Close() && status.ok()) status = ErrnoStatus("cannot write", path);
  if (status.ok() && std::rename(temporary.c_str(), path.c_str()) != 0) {
    status = ErrnoStatus("cannot replace", path);
  }
  if (!status.ok()) ::unlink(temporary.c_str());
  return status;
}

Result<bool> CreateFileOnce(const std::string& path, std::string_view text, unsigned mode) {
  GACCD_ASSIGN_OR_RETURN(TemporaryFile temporary_file, CreateTemporary(path, mode));
  auto& [temporary, file] = temporary_file;
  Status status = WriteAll(file.get(), text, path);
  if (status.ok() && ::fsync(file.get()) != 0) {
    status = ErrnoStatus("cannot make durable", path);
  }
  if (!file.Close() && status.ok()) status = ErrnoStatus("cannot write", path);
  // A hard link to the complete file: unlike rename(), it never replaces an existing one.
  bool made = status.ok() && ::link(temporary.c_str(), path.c_str()) == 0;
  if (status.ok() && !made && MeansNoLinks(errno)) made = TakeName(temporary, path, mode);
  if (status.ok() && !made && errno != EEXIST) status = ErrnoStatus("cannot create", path);
  ::unlink(temporary.c_str());
  GACCD_RETURN_IF_ERROR(status);
  if (made) GACCD_RETURN_IF_ERROR(SyncFolder(ParentFolder(path)));
  return !made;
}

Status MakeFolders(const std::string& path, unsigned mode) {
  int parent_error = 0;  // of the first parent that could not be created
  for (std::size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
    const std::string part = path.substr(0, end);
    if (::mkdir(part.c_str(), mode) != 0 && errno != EEXIST) {
      // A parent may exist but be read-only; only the last part matters.
      if (end == std::string::npos || errno == ENOTDIR || errno == ELOOP) {
        if (errno == ENOENT && parent_error != 0) errno = parent_error;
        return ErrnoStatus("cannot create folder", path);
      }
      if (parent_error == 0) parent_error = errno;
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

Status SyncFolder(const std::string& path) {
  const FileDescriptor folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // EINVAL: the file system does not sync folders.
  if (!folder.valid() || (::fsync(folder.get()) != 0 && errno != EINVAL)) {
    return ErrnoStatus("cannot make folder durable", path);
  }
  return Status::Ok();
}

std::string ParentFolder(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return path.substr(0, std::max<std::size_t>(slash, 1));
}

std::string AbsolutePath(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path whole = fs::absolute(path, error);
  if (error) return path;
  fs::path plain;
  for (const fs::path& part : whole) {
    if (part == ".") continue;
    if (part != "..") {
      plain /= part;
      continue;
    }
    if (fs::is_symlink(plain, error)) {
      fs::path target = fs::canonical(plain, error);
      if (error) return whole;
      plain = std::move(target);
    }
    plain = plain.parent_path();
  }
  return plain;
}

std::string FolderName(const std::string& path) {
  char resolved[PATH_MAX];
  const std::string whole = ::realpath(path.c_str(), resolved) == nullptr ? path : resolved;
  return whole.substr(whole.rfind('/') + 1);
}

bool PathExists(const std::string& path) {
  struct stat info {};
  return ::lstat(path.c_str(), &info) == 0;
}

bool IsFolder(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

Result<std::vector<std::string>> ListFolder(const std::string& path, std::size_t max_entries) {
  const FileDescriptor folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder.valid()) return ErrnoStatus("cannot list folder", path);
  return ListFolder(folder.get(), path, max_entries);
}

Result<std::vector<std::string>> ListFolder(int fd, const std::string& path,
                                            std::size_t max_entries) {
  const int own = ::openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);  // closedir() closes it
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(own < 0 ? nullptr : ::fdopendir(own),
                                                   ::closedir);
  if (folder == nullptr) return ErrnoStatus("cannot list folder", path);
  std::vector<std::string> names;
  for (;;) {
    errno = 0;
    const dirent* entry = ::readdir(folder.get());
    if (entry == nullptr && errno != 0) return ErrnoStatus("cannot list folder", path);
    if (entry == nullptr) break;
    const std::string_view name = entry->d_name;
    if (name == "." || name == "..") continue;
    if (names.size() == max_entries) {
      return Status(ErrorKind::kData, StrCat("folder '", path, "': expected at most ", max_entries,
                                             " entries, found more"));
    }
    names.emplace_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

bool IsTrustedOwner(unsigned user) { return user == 0 || user == ::geteuid(); }

Result<FileDescriptor> OpenOwnFolder(const std::string& path) {
  GACCD_ASSIGN_OR_RETURN(FileDescriptor folder, OpenFile(path, O_RDONLY | O_DIRECTORY));
  struct stat info {};
  if (::fstat(folder.get(), &info) != 0) return ErrnoStatus("cannot examine", path);
  if (IsTrustedOwner(info.st_uid)) return folder;
  return Status(ErrorKind::kIo, StrCat("'", path, "' belongs to user ", info.st_uid,
                                       ", expected user ", ::geteuid(), " or root"));
}

Result<std::string> ReadStart(const std::string& path, std::size_t limit) {
  GACCD_ASSIGN_OR_RETURN(const FileDescriptor file, OpenFile(path, O_RDONLY));
  return ReadStart(file.get(), path, limit);
}

Result<std::string> ReadStart(int fd, const std::string& path, std::size_t limit) {
  struct stat info {};
  GACCD_RETURN_IF_ERROR(StatRegularFile(fd, path, &info));
  std::string text(limit, '\0');
  std::size_t done = 0;
  while (done < limit) {
    const ssize_t got = ::pread(fd, text.data() + done, limit - done, static_cast<off_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoStatus("cannot read", path);
    if (got == 0) break;
    done += static_cast<std::size_t>(got);
  }
  text.resize(done);
  return text;
}

Result<std::string> ReadSmallFile(const std::string& path, ErrorKind too_large) {
  auto file = InputFile::Open(path);
  if (!file.ok()) return file.status();
  if (file->size() > kMaxTextBytes) {
    return Status(too_large, StrCat("'", path, "' is too large: at most ", kMaxTextBytes,
                                    " bytes, found ", file->size()));
  }
  std::string text(file->size(), '\0');
  GACCD_RETURN_IF_ERROR(file->ReadAt(0, std::as_writable_bytes(std::span(text))));
  return text;
}

Result<InputFile> InputFile::Open(const std::string& path, Links links) {
  // O_NONBLOCK: opening a FIFO without a writer would block forever.
  const int flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK;
  FileDescriptor file(::open(path.c_str(), links == Links::kRefuse ? flags | O_NOFOLLOW : flags));
  if (!file.valid()) return ErrnoStatus("cannot read", path);
  struct stat info {};
  GACCD_RETURN_IF_ERROR(StatRegularFile(file.get(), path, &info));
  if (links == Links::kRefuse && !IsTrustedOwner(info.st_uid)) {
    return Status(ErrorKind::kIo,
                  StrCat("'", path, "' belongs to user ", info.st_uid, ", expected user ",
                         ::geteuid(), " or root: if you trust it, make a copy of your own"));
  }
  return InputFile(path, std::move(file), static_cast<std::uint64_t>(info.st_size));
}

Status InputFile::ReadAt(std::uint64_t offset, std::span<std::byte> out, Ticks* ticks) const {
  while (!out.empty()) {
    const std::size_t most = ticks == nullptr ? out.size() : Ticks::kBytes;
    const ssize_t got =
        ::pread(file_.get(), out.data(), std::min(out.size(), most), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoStatus(StrCat("cannot read from byte ", offset, " of"), path_);
    if (got == 0) {
      return {ErrorKind::kIo,
              StrCat("cannot read '", path_, "': expected ", size_, " bytes, found its end at ",
                     offset, ": it became shorter while it was read")};
    }
    out = out.subspan(static_cast<std::size_t>(got));
    offset += static_cast<std::uint64_t>(got);
    if (ticks != nullptr) {
      GACCD_RETURN_IF_ERROR(ticks->Add(static_cast<std::uint64_t>(got)));
    }
  }
  return Status::Ok();
}

Result<DurableFile> DurableFile::Create(const std::string& path, unsigned mode) {
  GACCD_ASSIGN_OR_RETURN(TemporaryFile made, CreateTemporary(path, mode));
  return DurableFile(path, std::move(made.path), std::move(made.file));
}

DurableFile::~DurableFile() {
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

Status DurableFile::Write(std::span<const std::byte> bytes) {
  return WriteAll(file_.get(), bytes, path_);
}

Status DurableFile::Finish() {
  if (::fsync(file_.get()) != 0) return ErrnoStatus("cannot make durable", path_);
  if (!file_.Close()) return ErrnoStatus("cannot close", path_);
  return Status::Ok();
}

Status DurableFile::Publish() {
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) {
    return ErrnoStatus("cannot replace", path_);
  }
  temporary_.clear();
  return SyncFolder(ParentFolder(path_));
}

Status DurableFile::Commit() {
  GACCD_RETURN_IF_ERROR(Finish());
  return Publish();
}

Result<std::map<std::string, std::string>> Glob(const std::string& pattern) {
  constexpr std::size_t kMaxFiles = std::size_t{1} << 20;
  std::map<std::string, std::string> files;
  const std::string folder = pattern.substr(0, pattern.rfind('/') + 1);
  const std::string name = pattern.substr(folder.size());
  if (!IsPattern(name) || !IsFolder(ParentFolder(pattern))) return files;
  GACCD_ASSIGN_OR_RETURN(const auto names, ListFolder(ParentFolder(pattern), kMaxFiles));
  const std::string before = name.substr(0, name.find('*'));
  const std::string after = name.substr(before.size() + 1);
  for (const std::string& file : names) {
    if (file.starts_with('.') && !name.starts_with('.')) continue;  // as for a shell
    if (file.size() < before.size() + after.size() || !file.starts_with(before) ||
        !file.ends_with(after)) {
      continue;
    }
    const std::size_t length = file.size() - before.size() - after.size();
    files.emplace(file.substr(before.size(), length), folder + file);
  }
  return files;
}

}  // namespace gaccd
