// Trainer: reports of failed allocations (daemon/engine/divided_steps.h).
#include <span>

#include "daemon/train/trainer.h"

namespace gaccd {

void Trainer::ReportAllocationRetries(std::int64_t restored) {
  for (AllocationRetryRecord retry :
       engine_->divided_steps().retries().subspan(reported_retries_)) {
    if (retry.step > 0) retry.micro_step += restored;
    progress_.reporter->Report(retry);
    ++reported_retries_;
  }
}

Status Trainer::SumAllocationRetries(TrainingSummary* summary) {
  summary->allocation_retries = static_cast<std::int64_t>(reported_retries_);
  const MutableBuffer sum = View(std::span(&summary->allocation_retries, 1));
  return comm_.AllReduceSum(sum, sum);
}

}  // namespace gaccd
