// DividedSteps: the micro-steps of this rank. One for which the device had no memory runs again in
// parts: of half as many samples, with graphs prepared for them in memory that is taken anew. Every
// prediction weighs 1/N whatever the micro-batch is, so that the sums are the same but for their
// rounding, and no other rank takes part. The smaller size stays. Used by one thread.
//
// A failure ends the run where the parts would be something else (statistics of a micro-batch or of
// the update, a loss or collective operations over several micro-batches), after kMostRetries of
// them, or with one sample left.
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

// An allocation that failed, and what it led to.
struct AllocationRetry {
  std::int64_t step = 0;        // the update, from 1; 0: before the first one
  std::int64_t micro_step = 0;  // of those that this update was given, from 0
  // The most samples at once, and the memory that the engine plans on its device.
  std::int64_t samples_before = 0;
  std::int64_t samples = 0;
  std::int64_t bytes_before = 0;
  std::int64_t bytes = 0;
  std::string reason;  // the error
};

class DividedSteps {
 public:
  static constexpr std::size_t kMostRetries = 3;

  // planned: the sizes that `backend` was made for. refuses: EngineChoice::refuses_memory. Model
  // and backend outlive this.
  DividedSteps(const Model& model, const std::set<std::int64_t>& planned,
               std::function<bool(std::int64_t samples)> refuses, Backend& backend);

  // To be called once, before the first update: where the backend was made without the memory of
  // its micro-steps.
  Status TakeMemory();
  // Update `update` (from 0) begins.
  void Begin(std::int64_t update);
  // As Backend::MicroStep(). kConfig, with advice, where memory is short and it is not retried.
  Status MicroStep(const BatchView& batch, StepPlace place, std::int64_t first = 0,
                   const float* row_gradients = nullptr);

  [[nodiscard]] std::span<const AllocationRetry> retries() const { return retries_; }

 private:
  // The allocation for `count` samples has failed, and `rest` are left of the micro-batch.
  Status Halve(std::int64_t count, std::int64_t rest, Status failure);
  [[nodiscard]] Status CheckRetry(std::int64_t count, const Status& failure) const;
  // Of the parts of planned micro-batches, and of `rest` samples.
  [[nodiscard]] std::set<std::int64_t> Sizes(std::int64_t rest) const;
  [[nodiscard]] std::int64_t PlannedBytes() const;

  const Model& model_;
  const std::set<std::int64_t> planned_;
  const std::function<bool(std::int64_t samples)> refuses_;
  Backend& backend_;
  std::int64_t most_;  // samples at once
  std::int64_t step_ = 0;
  std::int64_t micro_step_ = 0;  // the next one
  std::vector<AllocationRetry> retries_;
};

}  // namespace gaccd
