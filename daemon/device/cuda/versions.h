// Versions of the CUDA libraries: compiled with, and found on this machine. Needs no GPU; also
// available in builds without CUDA.
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

// CUDA encodes 13.0 as 13000; cuBLASLt, cuDNN (from 9) and NCCL (from 2.9) encode 9.19.0 as 91900.
[[nodiscard]] LibraryVersion CudaVersion(int code);
[[nodiscard]] LibraryVersion DecodeVersion(int code);

struct LibraryVersions {
  std::string name;         // "cuBLASLt"
  LibraryVersion compiled;  // of the headers
  std::optional<LibraryVersion> loaded;
  std::string detail;  // if `loaded` is empty: why; for the driver: its own version and build
  // The oldest version with everything that gaccd calls. NVIDIA keeps the interface within a major
  // version, and gaccd contains machine code for its target GPUs, so a lower minor version is
  // sufficient.
  LibraryVersion oldest = {compiled.major, 0, 0};
};

// From this version attention is bit-reproducible on Blackwell and needs no lengths on the host.
inline constexpr int kOldestCudnn = 91800;

// CUDA runtime, driver, cuBLASLt, cuDNN, in this order. Only built with CUDA. The caller
// adds NCCL, which belongs to the collectives. Uses no GPU.
[[nodiscard]] std::vector<LibraryVersions> CudaLibraries();

// "cuBLASLt 13.1.0 (compiled with 13.0.0)"; "cuDNN not found (compiled with 9.19.0): cannot load
// libcudnn.so.9: ..."
[[nodiscard]] std::string ToText(const LibraryVersions& library);

// kUnavailable, with both versions of every library that is older than `oldest`. A missing library
// is not an error here, as it may not be needed.
Status CheckNotOlder(std::span<const LibraryVersions> libraries);

}  // namespace gaccd
