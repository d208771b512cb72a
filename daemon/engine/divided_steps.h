// DividedSteps: the micro-steps of this rank. If the device has no memory for them, graphs that
// need less are prepared in newly allocated memory, and are kept. Other ranks are not involved.
//
// | micro-steps                                            | run again                          |
// |--------------------------------------------------------|------------------------------------|
// | whose parts have the same sums up to rounding, as every| in parts of half as many samples   |
// | prediction weighs 1/N whatever the micro-batch size    |                                    |
// | of one sample; with statistics of the micro-batch, a   | with Recompute::kBlocks: the same  |
// | contrastive loss, or ReplicaOptions::any_split         | bits                               |
// | with sums over the update, which keep the activations  | with Recompute::kBlocks, if the    |
// | of all its samples, however they are divided           | memory is short before the first   |
// |                                                        | update                             |
//
// The shortage ends the run after kMaxRetries retries, if the model has no blocks to recompute, or
// if other ranks take part in a micro-step. Used by one thread.
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

  // Call once before the first update: retries if the backend was made without memory for its
  // micro-steps.
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
  // EngineChoice::refuses_memory: an error if it simulates one.
  [[nodiscard]] Status RefusedForTest(std::int64_t count) const;
  // Prepares graphs that need less memory after the allocation for `count` samples failed; `rest`
  // samples of the micro-batch are not computed yet.
  Status Reduce(std::int64_t count, std::int64_t rest, Status failure);
  // Halves max_samples_, or else sets recompute_; kConfig if neither is possible.
  Status ReduceOnce(std::int64_t count, const Status& failure);
  // Sizes of the parts of the planned micro-batches and of `rest` samples.
  [[nodiscard]] std::set<std::int64_t> Sizes(std::int64_t rest) const;
  [[nodiscard]] std::int64_t PlannedBytes() const;

  const Model& model_;
  const std::set<std::int64_t> planned_;
  const bool any_split_;
  const std::function<bool(std::int64_t samples)> refuses_;
  std::function<void(bool preparing)> on_prepare_ = [](bool) {};
  Backend& backend_;
  std::int64_t max_samples_;  // maximum samples per micro-step
  Recompute recompute_;
  std::int64_t step_ = 0;
  std::int64_t micro_step_ = 0;  // index of the next one
  std::vector<AllocationRetryRecord> retries_;
};

}  // namespace gaccd
