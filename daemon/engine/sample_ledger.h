// SampleLedger: the audit of phase 5. Counts the samples that this rank has computed, in integers,
// and checks at every update that the sum over all ranks equals the planned number.
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

class SampleLedger {
 public:
  // Counts `samples` (>= 0) of one micro-step.
  void Add(std::int64_t samples) { counted_ += samples; }

  // Samples counted on this rank since the last audit.
  [[nodiscard]] std::int64_t counted() const { return counted_; }

  // Call at the end of every update, on all ranks. sum: counted() summed over all ranks. Resets the
  // count to 0. kInternal, on every rank, if sum != planned: the message contains both and the
  // counts of all ranks, whose exchange is collective. Errors of the communicator are passed on.
  Status Audit(Communicator& comm, std::int64_t sum, std::int64_t planned);

 private:
  std::int64_t counted_ = 0;
};

// 1 / count: the weight of one prediction in an update of `count` predictions over all ranks.
// kInternal for count < 1: an update without samples has no mean.
Result<double> InverseCount(std::int64_t count);

}  // namespace gaccd
