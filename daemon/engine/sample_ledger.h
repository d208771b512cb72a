// SampleLedger: the audit of phase 5. It counts the samples this rank really computed, in integers,
// and proves at every update that all ranks together counted what the plan says.
#pragma once

#include <cstdint>

#include "collectives/base/result.h"
#include "collectives/comm/communicator.h"

namespace gaccd {

// Not thread-safe.
// What a rank has counted so far in an update that is not over.
struct WindowShare {
  std::int64_t samples = 0;
  double loss_sum = 0;  // not weighted
  double divisor = 0;   // what the loss is to be divided by

  friend bool operator==(const WindowShare&, const WindowShare&) = default;
};

class SampleLedger {
 public:
  // One micro-step computed so many samples (>= 0).
  void Add(std::int64_t samples) { counted_ += samples; }

  // Samples counted on this rank since the last audit.
  [[nodiscard]] std::int64_t counted() const { return counted_; }

  // At the end of every update, on all ranks: `sum` is that of counted() over all ranks. Starts
  // again from 0. Error kInternal, on every rank, when the sum is not `planned`: it names both and
  // the counts of all ranks, which is collective. Errors of the communicator are passed on.
  Status Audit(Communicator& comm, std::int64_t sum, std::int64_t planned);

 private:
  std::int64_t counted_ = 0;
};

// 1 / count: the weight of one prediction of an update of `count` predictions over all ranks. Error
// kInternal for count < 1: an update without samples has no mean.
Result<double> InverseCount(std::int64_t count);

}  // namespace gaccd
