// SharedLibrary: a library loaded on demand, so that the binary starts on machines without it.
#pragma once

#include <dlfcn.h>

#include <string>
#include <utility>

#include "collectives/base/result.h"
#include "collectives/base/strings.h"

namespace gaccd {

class SharedLibrary {
 public:
  // name: as for dlopen: "libnccl.so.2" is searched in LD_LIBRARY_PATH and the system's folders.
  // kUnavailable with the loader's message. Never unloaded, as CUDA libraries may not support that.
  static Result<SharedLibrary> Open(const std::string& name) {
    void* const handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle != nullptr) return SharedLibrary(name, handle);
    return Status(ErrorKind::kUnavailable, StrCat("cannot load ", name, ": ", dlerror()));
  }

  // The handle from dlopen(), for code that looks up symbols itself.
  [[nodiscard]] void* handle() const { return handle_; }

  // kUnavailable, with library and symbol, if the symbol is missing.
  template <typename Function>
  Status Find(const char* symbol, Function* function) const {
    *function = reinterpret_cast<Function>(dlsym(handle_, symbol));
    if (*function != nullptr) return Status::Ok();
    return {ErrorKind::kUnavailable, StrCat(name_, " has no function ", symbol)};
  }

 private:
  SharedLibrary(std::string name, void* handle) : name_(std::move(name)), handle_(handle) {}

  std::string name_;
  void* handle_;
};

}  // namespace gaccd
