// The versions of CUDA's libraries: compiled with, and found on this machine. Needs no GPU, and is
// there without CUDA too.
#pragma once

#include <compare>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collectives/base/result.h"

namespace gaccd {

struct LibraryVersion {
  int major = 0;
  int minor = 0;
  int patch = 0;

  auto operator<=>(const LibraryVersion&) const = default;
};

// "13.1.0"
[[nodiscard]] std::string ToText(const LibraryVersion& version);

// CUDA counts 13000 for 13.0; cuBLASLt, cuDNN (from 9 on) and NCCL (from 2.9 on) 91900 for 9.19.0.
[[nodiscard]] LibraryVersion CudaVersion(int code);
[[nodiscard]] LibraryVersion VersionOfCode(int code);

struct LibraryVersions {
  std::string name;         // "cuBLASLt"
  LibraryVersion compiled;  // of the headers
  std::optional<LibraryVersion> loaded;
  std::string detail;  // without `loaded`: why; the driver: its own version and build
  // The oldest that has all that gaccd calls. Within a major version NVIDIA keeps the interface,
  // and gaccd carries machine code for the GPUs it was compiled for, so a lower minor version is
  // enough.
  LibraryVersion oldest = {compiled.major, 0, 0};
};

// Its attention repeats bit for bit on Blackwell from here on, and needs no lengths from the host.
inline constexpr int kOldestCudnn = 91800;

// CUDA runtime, driver, cuBLASLt, cuDNN, in this order; empty when gaccd was built without CUDA.
// NCCL belongs to the collectives: the caller that prints all of them adds it. Starts nothing on a
// GPU.
[[nodiscard]] std::vector<LibraryVersions> CudaLibraries();

// "cuBLASLt 13.1.0 (compiled with 13.0.0)"; "cuDNN not found (compiled with 9.19.0): cannot load
// libcudnn.so.9: ..."
[[nodiscard]] std::string ToText(const LibraryVersions& library);

// kUnavailable, naming every library that is older than `oldest` and both versions. A library that
// is not there is no error here: it may not be needed.
Status CheckNotOlder(std::span<const LibraryVersions> libraries);

}  // namespace gaccd
