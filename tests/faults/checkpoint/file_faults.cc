// LD_PRELOAD library: the file system fails, or the machine dies, at the N-th call that changes
// something under a folder. The environment says where and how:
//
//   FAULT_FOLDER  calls with paths under it are counted, and calls on files opened there
//   FAULT_READS   1: calls that only look or read are counted, too
//   FAULT_AT      N, from 1; 0 = never
//   FAULT_KIND    kill     SIGKILL instead of the call
//                 torn     half of a write, then SIGKILL (other calls: as kill)
//                 power    SIGKILL, and what was not fsynced is lost: files written since their
//                          last fsync become empty, names made since the last fsync of their
//                          folder vanish, and a MANIFEST removed since then is there again
//                 flip     a write changes one bit of its bytes (other calls: nothing happens)
//                 claim    another writer is faster: the first .epoch-* that is created is there
//                 short    half of a write or pread, which is no error (other calls: nothing
//                          happens)
//                 enospc, eio    the call fails once
//                 full, broken   the same, and every later call fails too
//   FAULT_COUNT   a file that gets the number of calls when the process ends by itself
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <utility>

namespace {

namespace fs = std::filesystem;

template <typename F>
F* Real(const char* name) {
  return reinterpret_cast<F*>(::dlsym(RTLD_NEXT, name));
}

std::string Environment(const char* name) {
  const char* value = ::getenv(name);
  return value == nullptr ? "" : value;
}

class Faults {
 public:
  std::recursive_mutex mutex;  // losing power removes files

  [[nodiscard]] bool Watches(const std::string& path) const {
    return !folder_.empty() && path.starts_with(folder_);
  }
  [[nodiscard]] const std::string* FindPath(int fd) const {
    const auto found = paths_.find(fd);
    return found == paths_.end() ? nullptr : &found->second;
  }
  void Opened(int fd, const std::string& path, bool created) {
    paths_[fd] = path;
    if (created) names_.insert(path);
  }
  void Closed(int fd) { paths_.erase(fd); }
  void Wrote(const std::string& path) { dirty_.insert(path); }
  void Made(const std::string& path) { names_.insert(path); }
  void Renamed(const std::string& from, const std::string& to) {
    if (dirty_.erase(from) > 0) dirty_.insert(to);
    names_.erase(from);
    names_.insert(to);
  }
  // To be called before `path` is removed: of all that is in a folder, the disk may forget to
  // remove the one file that says the others are there.
  void Remember(const std::string& path) {
    if (kind_ != "power" || !path.ends_with("/MANIFEST")) return;
    std::FILE* file = std::fopen(path.c_str(), "rb");
    if (file == nullptr) return;
    std::string bytes(1 << 20, '\0');
    bytes.resize(std::fread(bytes.data(), 1, bytes.size(), file));
    std::fclose(file);
    if (dirty_.count(path) == 0 && names_.count(path) == 0) removed_[path] = bytes;
  }
  void Removed(const std::string& path) {
    names_.erase(path);
    dirty_.erase(path);
  }
  void Synced(const std::string& path) {
    dirty_.erase(path);
    std::erase_if(removed_,
                  [&](const auto& one) { return fs::path(one.first).parent_path() == path; });
    std::erase_if(names_,
                  [&](const std::string& name) { return fs::path(name).parent_path() == path; });
  }

  // The same of a call that changes nothing.
  bool CountRead() { return reads_ && Count(); }
  // Counts a call. Whether it must fail; errno is then set. May not return.
  bool Count(bool is_write = false) {
    ++calls_;
    const bool later = kind_ == "full" || kind_ == "broken";
    if (at_ == 0 || calls_ < at_ || (calls_ > at_ && !later)) return false;
    if (kind_ == "enospc" || kind_ == "full") return Fail(ENOSPC);
    if (kind_ == "eio" || kind_ == "broken") return Fail(EIO);
    if (kind_ == "power") LosePower();
    if (kind_ == "kill" || kind_ == "power" || (kind_ == "torn" && !is_write)) Die();
    return false;
  }
  // Of the write or pread that was counted just now: whether only half of the bytes pass.
  [[nodiscard]] bool Halves() const {
    return calls_ == at_ && (kind_ == "torn" || kind_ == "short");
  }
  [[nodiscard]] bool DiesNow() const { return calls_ == at_ && kind_ == "torn"; }
  // Of a file whose content is read again.
  [[nodiscard]] bool Flips(const std::string& path) const {
    const std::string name = fs::path(path).filename();
    return calls_ == at_ && kind_ == "flip" &&
           (name.starts_with("shard-") || name.starts_with("MANIFEST"));
  }
  // Whether another writer claims this name just before.
  [[nodiscard]] bool IsClaimed(const std::string& path) {
    if (kind_ != "claim" || !fs::path(path).filename().string().starts_with(".epoch-"))
      return false;
    return !std::exchange(claimed_, true);
  }
  [[noreturn]] static void Die() {
    ::kill(::getpid(), SIGKILL);
    for (;;) ::pause();
  }

  ~Faults() {
    const std::string path = Environment("FAULT_COUNT");
    if (path.empty()) return;
    if (std::FILE* file = std::fopen(path.c_str(), "w")) {
      std::fprintf(file, "%ld\n", calls_);
      std::fclose(file);
    }
  }

 private:
  static bool Fail(int error) {
    errno = error;
    return true;
  }
  void LosePower() {
    folder_.clear();  // what is called from here on is not watched
    std::error_code ignored;
    for (const std::string& path : dirty_) fs::resize_file(path, 0, ignored);
    for (const std::string& path : names_) fs::remove_all(path, ignored);
    for (const auto& [path, bytes] : removed_) {
      std::FILE* file = std::fopen(path.c_str(), "wb");
      if (file == nullptr) continue;  // its folder is gone, too
      std::fwrite(bytes.data(), 1, bytes.size(), file);
      std::fclose(file);
    }
  }

  std::string folder_ = Environment("FAULT_FOLDER");
  std::string kind_ = Environment("FAULT_KIND");
  bool reads_ = Environment("FAULT_READS") == "1";
  long at_ = std::atol(Environment("FAULT_AT").c_str());
  long calls_ = 0;
  std::map<int, std::string> paths_;            // of open files under the folder
  std::set<std::string> dirty_;                 // files with bytes that are not on the disk
  std::set<std::string> names_;                 // that are not on the disk
  std::map<std::string, std::string> removed_;  // MANIFESTs that are still on the disk
  bool claimed_ = false;
};

Faults& State() {
  static Faults faults;
  return faults;
}

int RealLstat(const char* path, struct stat* info) {
  static auto* const real = Real<int(const char*, struct stat*)>("lstat");
  return real(path, info);
}

bool Exists(const char* path) {
  struct stat info {};
  return RealLstat(path, &info) == 0;
}

int Open(const char* path, int flags, mode_t mode) {
  static auto* const real = Real<int(const char*, int, ...)>("open");
  Faults& faults = State();
  const std::lock_guard lock(faults.mutex);
  if (!faults.Watches(path)) return real(path, flags, mode);
  if ((flags & O_CREAT) != 0 && faults.IsClaimed(path))
    ::close(real(path, O_WRONLY | O_CREAT, 0600));
  const bool creates = (flags & O_CREAT) != 0 && !Exists(path);
  const bool reads = (flags & O_ACCMODE) == O_RDONLY;
  if (reads ? faults.CountRead() : faults.Count()) return -1;
  const int fd = real(path, flags, mode);
  if (fd >= 0) faults.Opened(fd, path, creates);
  return fd;
}

// A call on a path that is only counted; `done` says what it changed.
template <typename Call, typename Done>
int OnPath(const char* path, const Call& call, const Done& done) {
  Faults& faults = State();
  const std::lock_guard lock(faults.mutex);
  if (!faults.Watches(path)) return call();
  if (faults.Count()) return -1;
  const int result = call();
  if (result == 0) done(faults);
  return result;
}

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(arguments, mode_t) : 0;
  va_end(arguments);
  return Open(path, flags, mode);
}

int open64(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(arguments, mode_t) : 0;
  va_end(arguments);
  return Open(path, flags, mode);
}

ssize_t write(int fd, const void* bytes, size_t size) {
  static auto* const real = Real<ssize_t(int, const void*, size_t)>("write");
  Faults& faults = State();
  const std::lock_guard lock(faults.mutex);
  const std::string* path = faults.FindPath(fd);
  if (path == nullptr) return real(fd, bytes, size);
  if (faults.Count(/*is_write=*/true)) return -1;
  faults.Wrote(*path);
  std::string copy(static_cast<const char*>(bytes), size);
  if (faults.Flips(*path)) copy[size / 2] = static_cast<char>(copy[size / 2] ^ 1);
  const ssize_t written = real(fd, copy.data(), faults.Halves() ? (size + 1) / 2 : size);
  if (faults.DiesNow()) Faults::Die();
  return written;
}

int fsync(int fd) {
  static auto* const real = Real<int(int)>("fsync");
  Faults& faults = State();
  const std::lock_guard lock(faults.mutex);
  const std::string* path = faults.FindPath(fd);
  if (path == nullptr) return real(fd);
  if (faults.Count()) return -1;
  faults.Synced(*path);  // and not really: the disk of the test machine is not what is tested
  return 0;
}

int close(int fd) {
  static auto* const real = Real<int(int)>("close");
  Faults& faults = State();
  const std::lock_guard lock(faults.mutex);
  const bool fails = faults.FindPath(fd) != nullptr && faults.Count();
  const int error = errno;
  faults.Closed(fd);
  const int result = real(fd);
  if (!fails) return result;
  errno = error;
  return -1;
}

int ftruncate(int fd, off_t size) {
  static auto* const real = Real<int(int, off_t)>("ftruncate");
  Faults& faults = State();
  const std::lock_guard lock(faults.mutex);
  if (faults.FindPath(fd) != nullptr && faults.Count()) return -1;
  return real(fd, size);
}

// What open(path, flags) becomes where the C library checks arguments.
int __open_2(const char* path, int flags) { return Open(path, flags, 0); }

int futimens(int fd, const struct timespec* times) {
  static auto* const real = Real<int(int, const struct timespec*)>("futimens");
  Faults& faults = State();
  const std::lock_guard lock(faults.mutex);
  if (faults.FindPath(fd) != nullptr && faults.Count()) return -1;
  return real(fd, times);
}

ssize_t pread(int fd, void* bytes, size_t size, off_t offset) {
  static auto* const real = Real<ssize_t(int, void*, size_t, off_t)>("pread");
  Faults& faults = State();
  const std::lock_guard lock(faults.mutex);
  if (faults.FindPath(fd) == nullptr) return real(fd, bytes, size, offset);
  if (faults.CountRead()) return -1;
  return real(fd, bytes, faults.Halves() ? (size + 1) / 2 : size, offset);
}

// Only of a folder's own descriptor: ListFolder().
int openat(int folder, const char* path, int flags, ...) {
  static auto* const real = Real<int(int, const char*, int, ...)>("openat");
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(arguments, mode_t) : 0;
  va_end(arguments);
  Faults& faults = State();
  const std::lock_guard lock(faults.mutex);
  const bool own = faults.FindPath(folder) != nullptr && std::string_view(path) == ".";
  return own && faults.CountRead() ? -1 : real(folder, path, flags, mode);
}

int __openat_2(int folder, const char* path, int flags) { return openat(folder, path, flags); }

int lstat(const char* path, struct stat* info) noexcept {
  Faults& faults = State();
  const std::lock_guard lock(faults.mutex);
  return faults.Watches(path) && faults.CountRead() ? -1 : RealLstat(path, info);
}

int fstat(int fd, struct stat* info) noexcept {
  static auto* const real = Real<int(int, struct stat*)>("fstat");
  Faults& faults = State();
  const std::lock_guard lock(faults.mutex);
  return faults.FindPath(fd) != nullptr && faults.CountRead() ? -1 : real(fd, info);
}

int link(const char* from, const char* to) noexcept {
  static auto* const real = Real<int(const char*, const char*)>("link");
  return OnPath(
      to, [&] { return real(from, to); }, [&](Faults& f) { f.Made(to); });
}

int rename(const char* from, const char* to) {
  static auto* const real = Real<int(const char*, const char*)>("rename");
  return OnPath(
      to, [&] { return real(from, to); }, [&](Faults& f) { f.Renamed(from, to); });
}

int mkdir(const char* path, mode_t mode) {
  static auto* const real = Real<int(const char*, mode_t)>("mkdir");
  return OnPath(
      path, [&] { return real(path, mode); }, [&](Faults& f) { f.Made(path); });
}

int unlink(const char* path) {
  static auto* const real = Real<int(const char*)>("unlink");
  return OnPath(
      path, [&] { return real(path); }, [&](Faults& f) { f.Removed(path); });
}

int unlinkat(int folder, const char* name, int flags) {
  static auto* const real = Real<int(int, const char*, int)>("unlinkat");
  Faults& faults = State();
  const std::lock_guard lock(faults.mutex);
  const std::string* watched = faults.FindPath(folder);
  if (watched == nullptr) return real(folder, name, flags);
  const std::string path = *watched + "/" + name;
  if (faults.Count()) return -1;
  faults.Remember(path);
  const int result = real(folder, name, flags);
  if (result == 0) faults.Removed(path);
  return result;
}

int rmdir(const char* path) {
  static auto* const real = Real<int(const char*)>("rmdir");
  return OnPath(
      path, [&] { return real(path); }, [&](Faults& f) { f.Removed(path); });
}

}  // extern "C"
