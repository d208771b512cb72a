#include "collectives/base/shared_library.h"

#include <dlfcn.h>

#include "collectives/base/strings.h"

namespace gaccd {

Result<SharedLibrary> SharedLibrary::Open(const std::string& name) {
  void* const handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    return Status(ErrorKind::kUnavailable, StrCat("cannot load ", name, ": ", dlerror()));
  }
  return SharedLibrary(name, handle);
}

Status SharedLibrary::FindAddress(const char* symbol, void** address) const {
  *address = dlsym(handle_, symbol);
  if (*address != nullptr) return Status::Ok();
  return {ErrorKind::kUnavailable, StrCat(name_, " has no function ", symbol)};
}

}  // namespace gaccd
