// ReplicaCheck: the parameters are the same on all ranks, bit for bit.
#pragma once

#include <cstdint>
#include <string>

#include "collectives/base/result.h"
#include "collectives/comm/communicator.h"
#include "daemon/engine/engine.h"

namespace gaccd {

class ReplicaCheck {
 public:
  // After every so many updates, and after the last one; 0: never. `comm` outlives it.
  ReplicaCheck(Communicator& comm, std::int64_t every, std::int64_t last)
      : comm_(&comm), every_(every), last_(last) {}

  [[nodiscard]] bool Due(std::int64_t step) const {
    return every_ > 0 && (step % every_ == 0 || step == last_);
  }
  // The digest of the parameters after update `step`; empty when it is not due. Collective. They
  // differ: kInternal on all ranks, and *differ is set; of other errors only this rank knows.
  Result<std::string> Compare(Engine& engine, std::int64_t step, bool* differ) const;

 private:
  Communicator* comm_;
  std::int64_t every_;
  std::int64_t last_;
};

}  // namespace gaccd
