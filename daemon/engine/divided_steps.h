// DividedSteps: the micro-steps of this rank. If the device has no memory for a micro-step, it runs
// again in parts of half as many samples, with graphs prepared for that size in newly allocated
// memory. Every prediction weighs 1/N whatever the micro-batch size, so the sums are the same up to
// rounding, and other ranks are not involved. The smaller size is kept. Used by one thread.
//
// The shortage ends the run if parts would compute a different result (statistics over a
// micro-batch or over the update, a loss or collective operations over several micro-batches,
// ReplicaOptions::any_split),
// after kMaxRetries retries, or with one sample left.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "collectives/base/result.h"
#include "daemon/engine/backend.h"
#include "daemon/replica/model.h"
#include "daemon/telemetry/run_events.h"

namespace gaccd {

class DividedSteps {
 public:
  static constexpr std::size_t kMaxRetries = 3;

  // planned: what `backend` was made for. refuses: EngineChoice::refuses_memory. `model` and
  // `backend` must outlive this.
  DividedSteps(const Model& model, const ReplicaOptions& planned,
               std::function<bool(std::int64_t samples)> refuses, Backend& backend);

  // on_prepare: called with true before graphs for smaller sizes are prepared, which may take
  // longer than many updates, and with false after it.
  void SetOnPrepare(std::function<void(bool preparing)> on_prepare) {
    on_prepare_ = std::move(on_prepare);
  }

  // Call once before the first update: retries with smaller sizes if the backend was made without
  // memory for its micro-steps.
  Status RetryAllocation();
  // Update `update` (from 0) begins.
  void Begin(std::int64_t update);
  // See Backend::MicroStep(). kConfig, with advice, if memory is short and the step is not retried.
  Status MicroStep(const BatchView& batch, MicroStepPosition place, std::int64_t first = 0,
                   const float* row_gradients = nullptr);

  // Failed allocations. Micro-steps are counted from the first one after Begin(), not from those
  // that a checkpoint restored.
  [[nodiscard]] std::span<const AllocationRetryRecord> retries() const { return retries_; }

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
  const bool any_split_;
  const std::function<bool(std::int64_t samples)> refuses_;
  std::function<void(bool preparing)> on_prepare_ = [](bool) {};
  Backend& backend_;
  std::int64_t most_;  // maximum samples per micro-step
  std::int64_t step_ = 0;
  std::int64_t micro_step_ = 0;  // index of the next one
  std::vector<AllocationRetryRecord> retries_;
};

}  // namespace gaccd
