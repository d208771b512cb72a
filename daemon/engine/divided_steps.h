// DividedSteps: the micro-steps of this rank. If the device has no memory for a micro-step, it runs
// again in parts of half as many samples, with graphs prepared for that size in newly allocated
// memory. Every prediction weighs 1/N whatever the micro-batch size, so the sums are the same up to
// rounding, and other ranks are not involved. The smaller size is kept. Used by one thread.
//
// The shortage ends the run if parts would compute a different result (statistics over a
// micro-batch or over the update, a loss or collective operations over several micro-batches),
// after kMaxRetries retries, or with one sample left.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "collectives/base/result.h"
#include "daemon/engine/backend.h"
#include "daemon/replica/model.h"

namespace gaccd {

// A failed allocation and the sizes used since.
struct AllocationRetry {
  std::int64_t step = 0;        // the update, from 1; 0: before the first one
  std::int64_t micro_step = 0;  // index of the micro-step in this update on this rank, from 0
  // The maximum number of samples per micro-step, and the memory that the engine plans on its
  // device.
  std::int64_t samples_before = 0;
  std::int64_t samples = 0;
  std::int64_t bytes_before = 0;
  std::int64_t bytes = 0;
  std::string reason;  // the error
};

class DividedSteps {
 public:
  static constexpr std::size_t kMaxRetries = 3;

  // planned: the sizes that `backend` was made for. refuses: EngineChoice::refuses_memory. `model`
  // and `backend` must outlive this.
  DividedSteps(const Model& model, const std::set<std::int64_t>& planned,
               std::function<bool(std::int64_t samples)> refuses, Backend& backend);

  // Call once before the first update: retries with smaller sizes if the backend was made without
  // memory for its micro-steps.
  Status RetryAllocation();
  // Update `update` (from 0) begins.
  void Begin(std::int64_t update);
  // See Backend::MicroStep(). kConfig, with advice, if memory is short and the step is not retried.
  Status MicroStep(const BatchView& batch, StepPlace place, std::int64_t first = 0,
                   const float* row_gradients = nullptr);

  [[nodiscard]] std::span<const AllocationRetry> retries() const { return retries_; }

 private:
  // Halves the size after the allocation for `count` samples failed; `rest` samples of the
  // micro-batch are not computed yet.
  Status Halve(std::int64_t count, std::int64_t rest, Status failure);
  [[nodiscard]] Status CheckRetry(std::int64_t count, const Status& failure) const;
  // Sizes of the parts of the planned micro-batches and of `rest` samples.
  [[nodiscard]] std::set<std::int64_t> Sizes(std::int64_t rest) const;
  [[nodiscard]] std::int64_t PlannedBytes() const;

  const Model& model_;
  const std::set<std::int64_t> planned_;
  const std::function<bool(std::int64_t samples)> refuses_;
  Backend& backend_;
  std::int64_t most_;  // maximum samples per micro-step
  std::int64_t step_ = 0;
  std::int64_t micro_step_ = 0;  // index of the next one
  std::vector<AllocationRetry> retries_;
};

}  // namespace gaccd
