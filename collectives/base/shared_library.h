// SharedLibrary: a library that is loaded only when it is needed, so that the binary starts where
// it is missing.
#pragma once

#include <string>

#include "collectives/base/result.h"

namespace gaccd {

class SharedLibrary {
 public:
  // `name` as for dlopen: "libnccl.so.2" is looked for in LD_LIBRARY_PATH and the system's folders.
  // kUnavailable with the loader's own words. It stays loaded to the end of the process: libraries
  // of CUDA do not like to be unloaded.
  static Result<SharedLibrary> Open(const std::string& name);

  // As dlopen() gave it, for code that looks for symbols by itself.
  [[nodiscard]] void* handle() const { return handle_; }

  // kUnavailable, naming library and symbol, when it is not there.
  template <typename Function>
  Status Find(const char* symbol, Function* function) const {
    void* address = nullptr;
    GACCD_RETURN_IF_ERROR(FindAddress(symbol, &address));
    *function = reinterpret_cast<Function>(address);
    return Status::Ok();
  }

 private:
  SharedLibrary(std::string name, void* handle) : name_(std::move(name)), handle_(handle) {}
  Status FindAddress(const char* symbol, void** address) const;

  std::string name_;
  void* handle_;
};

}  // namespace gaccd
