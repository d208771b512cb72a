// LD_PRELOAD library: system calls that not every kernel, container or file system has, or that
// report an error late.
//
//   MISSING_CALLS  the ones that fail, separated by commas:
//     close_range  EPERM, as in containers whose filter does not know it
//     link         EPERM, as on file systems without hard links
//     fsync        EINVAL for folders, as on some file systems
//     quota        EDQUOT when a file that was open for writing is closed, as on NFS
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace {

bool IsMissing(const char* call) {
  const char* const missing = ::getenv("MISSING_CALLS");
  return missing != nullptr && ::strstr(missing, call) != nullptr;
}

template <typename F>
F* Real(const char* name) {
  return reinterpret_cast<F*>(::dlsym(RTLD_NEXT, name));
}

int Fail(int error) {
  errno = error;
  return -1;
}

}  // namespace

extern "C" int close_range(unsigned first, unsigned last, int flags) noexcept {
  if (IsMissing("close_range")) return Fail(EPERM);
  return static_cast<int>(::syscall(SYS_close_range, first, last, flags));
}

extern "C" int link(const char* from, const char* to) noexcept {
  return IsMissing("link") ? Fail(EPERM) : Real<int(const char*, const char*)>("link")(from, to);
}

extern "C" int fsync(int fd) {
  struct stat info {};
  const bool folder = ::fstat(fd, &info) == 0 && S_ISDIR(info.st_mode);
  return folder && IsMissing("fsync") ? Fail(EINVAL) : Real<int(int)>("fsync")(fd);
}

extern "C" int close(int fd) {
  struct stat info {};
  const bool written = ::fstat(fd, &info) == 0 && S_ISREG(info.st_mode) &&
                       (::fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDONLY;
  const int result = Real<int(int)>("close")(fd);
  return written && IsMissing("quota") ? Fail(EDQUOT) : result;
}
