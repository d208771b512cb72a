// EngineRing: host memory of an engine for the batch ring of a Prefetcher. Allocated once, since it
// lives as long as the engine, and reused by one Prefetcher after another.
#pragma once

#include <cstddef>
#include <optional>

#include "daemon/data/prefetcher.h"
#include "daemon/engine/engine.h"

namespace gaccd {

class EngineRing {
 public:
  // Every call must be for the same engine and the same size. Engine and ring must outlive the
  // result.
  RingMemory MemoryFor(Engine& engine) {
    return [this, &engine](std::size_t bytes) -> Result<std::byte*> {
      if (!memory_) {
        GACCD_ASSIGN_OR_RETURN(memory_, engine.HostMemory(bytes));
      }
      return *memory_;
    };
  }

 private:
  std::optional<std::byte*> memory_;
};

}  // namespace gaccd
