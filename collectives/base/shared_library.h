// SharedLibrary: a library loaded on demand, so that the binary starts on machines without it.
#pragma once

#include <string>

#include "collectives/base/result.h"

namespace gaccd {

class SharedLibrary {
 public:
  // name: as for dlopen: "libnccl.so.2" is searched in LD_LIBRARY_PATH and the system's folders.
  // kUnavailable with the loader's message. Never unloaded, as CUDA libraries may not support that.
  static Result<SharedLibrary> Open(const std::string& name);

  // The handle from dlopen(), for code that looks up symbols itself.
  [[nodiscard]] void* handle() const { return handle_; }

  // kUnavailable, with library and symbol, if the symbol is missing.
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
