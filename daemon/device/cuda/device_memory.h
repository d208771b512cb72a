// DeviceMemory: what a rank will hold on its GPU, by kind, known before anything is allocated. The
// list needs no GPU, so that a login node can print it; FitsOnGpu() asks the GPU of this rank.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collectives/base/result.h"

namespace gaccd {

struct DeviceMemoryItem {
  std::string name;  // "activations"
  std::int64_t bytes = 0;
};

class DeviceMemory {
 public:
  // What nobody plans: graphs, code of kernels that CUDA loads at their first launch, and the
  // rounding of allocations (2 MiB each). An estimate, to be replaced by a figure from a GPU.
  static constexpr std::int64_t kReserveBytes = std::int64_t{256} << 20;

  // Bytes of one more kind; those of a known name are added to it. Nothing happens
  // for 0 bytes. REQUIRES: bytes >= 0.
  void Add(const std::string& name, std::int64_t bytes);

  [[nodiscard]] const std::vector<DeviceMemoryItem>& items() const { return items_; }
  [[nodiscard]] std::int64_t bytes() const;  // of all kinds, without the reserve

  // One line: "13.4 GiB: activations 10.1 GiB, parameters 1.6 GiB, ..."; the largest first.
  [[nodiscard]] std::string ToText() const;

  // kConfig, with the wanted bytes by kind, the reserve and the free bytes, when it does not fit.
  [[nodiscard]] Status Fits(std::int64_t free_bytes, std::int64_t total_bytes) const;

 private:
  std::vector<DeviceMemoryItem> items_;
};

// Fits() with what is free on the current device at this moment; to be called before the memory is
// allocated, and after CUDA, cuBLASLt and NCCL took theirs. Other processes on the GPU may take
// memory later. Only built with CUDA.
Status FitsOnGpu(const DeviceMemory& memory);
// What is free on the current device. Only built with CUDA.
Result<std::int64_t> FreeOnGpu();

}  // namespace gaccd
