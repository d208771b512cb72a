// The audit of phase 5: the samples that the ranks have counted must be the planned ones.
#pragma once

#include <cstdint>

#include "collectives/base/result.h"
#include "collectives/comm/communicator.h"

namespace gaccd {

// What a rank has counted so far in an update in progress.
struct PartialUpdate {
  std::int64_t samples = 0;
  double loss_sum = 0;  // unweighted
  double divisor = 0;   // the divisor of the loss

  friend bool operator==(const PartialUpdate&, const PartialUpdate&) = default;
};

// Collective: the error if `sum`, the samples that all ranks counted in an update, is not
// `planned`. kInternal on every rank, with both and `counted` of each rank; or an error of the
// communicator.
Status SampleCountError(Communicator& comm, std::int64_t counted, std::int64_t sum,
                        std::int64_t planned);

}  // namespace gaccd
