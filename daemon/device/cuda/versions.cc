#include "daemon/device/cuda/versions.h"

#include "collectives/base/strings.h"

namespace gaccd {
namespace {

bool IsTooOld(const LibraryVersions& library) {
  return library.loaded.has_value() && *library.loaded < library.oldest;
}

}  // namespace

std::string ToText(const LibraryVersion& version) {
  return StrCat(version.major, ".", version.minor, ".", version.patch);
}

LibraryVersion CudaVersion(int code) { return {code / 1000, code % 1000 / 10, code % 10}; }

LibraryVersion DecodeVersion(int code) { return {code / 10000, code % 10000 / 100, code % 100}; }

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
    old += StrCat(old.empty() ? "" : "; ", library.name, ": expected ", ToText(library.oldest),
                  " or newer, found ", ToText(*library.loaded));
  }
  if (old.empty()) return Status::Ok();
  return {ErrorKind::kUnavailable, StrCat("too old for this gaccd: ", old)};
}

}  // namespace gaccd
