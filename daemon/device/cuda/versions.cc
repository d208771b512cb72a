#include "daemon/device/cuda/versions.h"

#include "collectives/base/strings.h"

namespace gaccd {
namespace {

bool IsTooOld(const LibraryVersions& library) {
  if (!library.loaded.has_value()) return false;
  if (library.same_major_is_enough) return library.loaded->major < library.compiled.major;
  return *library.loaded < library.compiled;
}

}  // namespace

std::string ToText(const LibraryVersion& version) {
  return StrCat(version.major, ".", version.minor, ".", version.patch);
}

LibraryVersion CudaVersion(int code) { return {code / 1000, code % 1000 / 10, code % 10}; }

LibraryVersion VersionOfCode(int code) { return {code / 10000, code % 10000 / 100, code % 100}; }

std::string ToText(const LibraryVersions& library) {
  const std::string found =
      library.loaded.has_value() ? ToText(*library.loaded) : std::string("not found");
  return StrCat(library.name, " ", found, " (compiled with ", ToText(library.compiled), ")",
                library.detail.empty() ? "" : ": ", library.detail);
}

Status CheckNotOlder(std::span<const LibraryVersions> libraries) {
  std::string old;
  for (const LibraryVersions& library : libraries) {
    if (!IsTooOld(library)) continue;
    old += StrCat(old.empty() ? "" : "; ", library.name, ": compiled with ",
                  ToText(library.compiled), ", found ", ToText(*library.loaded));
  }
  if (old.empty()) return Status::Ok();
  return {ErrorKind::kUnavailable, StrCat("older than what gaccd was compiled with: ", old)};
}

}  // namespace gaccd
