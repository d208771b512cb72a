// Trainer: reports of failed allocations (daemon/engine/divided_steps.h).
#include <span>

#include "daemon/train/trainer.h"

namespace gaccd {

void Trainer::ReportAllocationRetries(std::int64_t restored) {
  for (const AllocationRetry& retry :
       engine_->divided_steps().retries().subspan(reported_retries_)) {
    const bool at_start = retry.step == 0;
    progress_.reporter->Report(
        AllocationRetryRecord{.step = retry.step,
                              .micro_step = at_start ? 0 : restored + retry.micro_step + 1,
                              .samples_before = retry.samples_before,
                              .samples = retry.samples,
                              .bytes_before = retry.bytes_before,
                              .bytes = retry.bytes,
                              .reason = retry.reason});
    ++reported_retries_;
  }
}

Status Trainer::SumAllocationRetries(TrainingSummary* summary) {
  summary->allocation_retries = static_cast<std::int64_t>(reported_retries_);
  const MutableBuffer sum = View(std::span(&summary->allocation_retries, 1));
  return comm_.AllReduceSum(sum, sum);
}

}  // namespace gaccd
