// EngineRing: host memory of an engine for a Prefetcher's ring of batches. Taken once, since it
// lives as long as the engine, and used by one Prefetcher after the other.
#pragma once

#include <cstddef>
#include <optional>

#include "daemon/data/prefetcher.h"
#include "daemon/engine/engine.h"

namespace gaccd {

class EngineRing {
 public:
  // Of the same engine and the same size in every call. Engine and ring outlive the result.
  RingMemory MemoryOf(Engine& engine) {
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
