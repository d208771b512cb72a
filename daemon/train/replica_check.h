// ReplicaCheck: checks that the parameters are bit-identical on all ranks.
#pragma once

#include <cstdint>
#include <string>

#include "collectives/base/result.h"
#include "collectives/comm/communicator.h"
#include "daemon/engine/engine.h"

namespace gaccd {

class ReplicaCheck {
 public:
  // Checks after every `every` updates, and after the last one; 0: never. `comm` must outlive it.
  ReplicaCheck(Communicator& comm, std::int64_t every, std::int64_t last)
      : comm_(&comm), every_(every), last_(last) {}

  [[nodiscard]] bool Due(std::int64_t step) const {
    return every_ > 0 && (step % every_ == 0 || step == last_);
  }
  // The digest of the parameters after update `step`; empty if no check is due. Collective. If they
  // differ: kInternal on all ranks, and *differ is set; other errors are local.
  Result<std::string> Compare(Engine& engine, std::int64_t step, bool* differ) const;

 private:
  Communicator* comm_;
  std::int64_t every_;
  std::int64_t last_;
};

}  // namespace gaccd
