// LD_PRELOAD library: a rank hangs where a test wants it to.
//
//   HOLD_PATH  opening this file waits until "<HOLD_PATH>.go" is there; before that the process
//              leaves "<HOLD_PATH>.seen-<pid>", with a byte for each time it opens it
//   HOLD_RANK  only in the process with this OMPI_COMM_WORLD_RANK; not set: in all
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <string>

namespace {

using Open = int (*)(const char*, int, ...);

Open Real(const char* name) { return reinterpret_cast<Open>(::dlsym(RTLD_NEXT, name)); }

bool Holds(const char* path) {
  const char* const held = ::getenv("HOLD_PATH");
  const char* const wanted = ::getenv("HOLD_RANK");
  const char* const rank = ::getenv("OMPI_COMM_WORLD_RANK");
  if (held == nullptr || ::strcmp(held, path) != 0) return false;
  return wanted == nullptr || (rank != nullptr && ::strcmp(wanted, rank) == 0);
}

void WaitHere(const char* path) {
  if (!Holds(path)) return;
  const std::string seen = std::string(path) + ".seen-" + std::to_string(::getpid());
  const int file = Real("open")(seen.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  [[maybe_unused]] const ssize_t written = ::write(file, "x", 1);
  ::close(file);
  const std::string go = std::string(path) + ".go";
  while (::access(go.c_str(), F_OK) != 0) ::usleep(10'000);
}

mode_t CreationMode(int flags, va_list arguments) {
  return (flags & O_CREAT) != 0 ? static_cast<mode_t>(va_arg(arguments, int)) : 0;
}

}  // namespace

extern "C" int open(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = CreationMode(flags, arguments);
  va_end(arguments);
  WaitHere(path);
  return Real("open")(path, flags, mode);
}

extern "C" int open64(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = CreationMode(flags, arguments);
  va_end(arguments);
  WaitHere(path);
  return Real("open64")(path, flags, mode);
}

// What _FORTIFY_SOURCE makes of the two above.
extern "C" int __open_2(const char* path, int flags) { return open(path, flags); }
extern "C" int __open64_2(const char* path, int flags) { return open64(path, flags); }
