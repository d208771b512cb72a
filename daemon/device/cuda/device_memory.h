// DeviceMemory: the memory that a rank needs on its GPU, by kind, known before anything is
// allocated. The list needs no GPU, so that a login node can print it; FitsOnGpu() checks the GPU
// of this rank.
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
  // Memory that is not planned: graphs, kernel code that CUDA loads at the first launch, and
  // rounding of allocations (2 MiB each). An estimate, not measured on a GPU.
  static constexpr std::int64_t kReserveBytes = std::int64_t{256} << 20;

  // Adds bytes to a kind; no effect for 0 bytes. REQUIRES: bytes >= 0.
  void Add(const std::string& name, std::int64_t bytes);

  [[nodiscard]] const std::vector<DeviceMemoryItem>& items() const { return items_; }
  [[nodiscard]] std::int64_t bytes() const;  // of all kinds, without the reserve

  // One line: "13.4 GiB: activations 10.1 GiB, parameters 1.6 GiB, ..."; in descending order.
  [[nodiscard]] std::string ToText() const;

  // kConfig, with the required bytes by kind, the reserve and the free bytes, if it does not fit.
  [[nodiscard]] Status Fits(std::int64_t free_bytes, std::int64_t total_bytes) const;

 private:
  std::vector<DeviceMemoryItem> items_;
};

}  // namespace gaccd
