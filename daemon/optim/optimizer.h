// Optimizer: computes new parameters from the reduced gradient of an update.
//
// Parameters and gradient are flat fp32 buffers with the same order (FlatLayout). The state has the
// same order without frozen parameters, which are not touched. Padding (value 0, gradient 0) stays
// 0. The semantics are those of torch.optim with parameter groups; each rule names its counterpart
// (rules.h).
//
// Results are bit-identical on every machine and for every SIMD clone, so that replicas on
// different CPUs do not diverge. Therefore fused multiply-add is disabled
// (daemon/optim/CMakeLists.txt). Used by one thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "collectives/base/result.h"
#include "daemon/config/job.h"
#include "daemon/tensor/flat_layout.h"
#include "daemon/tensor/shard_layout.h"

namespace gaccd {

// OptimizerRanges: the ranges of the flat buffers that a step updates, each with one group.

// Elements [first, first + elements) of parameters and gradient; their state is [state_first,
// state_first + elements) in every state buffer.
struct OptimizerRange {
  std::int64_t first = 0;
  std::int64_t elements = 0;
  std::int64_t state_first = 0;
  OptimizerGroup group = {};
};

class OptimizerRanges {
 public:
  // Everything that is not frozen, including padding; neighbours with the same group are one range.
  [[nodiscard]] static OptimizerRanges Make(const FlatLayout& layout);
  // The same for one part: elements and state places count from its beginning.
  [[nodiscard]] static OptimizerRanges Make(const FlatLayout& layout, const ShardPart& part);
  // One range from 0 on, with the settings of the optimiser.
  [[nodiscard]] static OptimizerRanges One(std::int64_t elements);

  [[nodiscard]] std::span<const OptimizerRange> all() const { return ranges_; }
  // Elements of all ranges; for a layout its trainable_size().
  [[nodiscard]] std::int64_t elements() const { return elements_; }

 private:
  std::vector<OptimizerRange> ranges_;
  std::int64_t elements_ = 0;
};

// Number of fp32 state values for `parameters` parameters (FlatLayout::trainable_size()), including
// averages if spec.ema is set. For the memory plan.
[[nodiscard]] std::int64_t StateElements(const OptimizerSpec& spec, std::int64_t parameters);

// Called during Step(): the parameters before element `end` have their new values.
using StepProgress = std::function<void(std::int64_t end)>;

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  // Performs one update. lr: the learning rate of this update, including warm-up and schedule.
  // Every gradient value is multiplied by gradient_scale (the clip factor; 1: not clipped). Reads
  // and writes only values within the ranges. `progress`, if set, is called at least every kPiece
  // elements, while they are in the caches.
  // REQUIRES: params.size() == gradient.size(), the ranges are within; the buffers do not overlap.
  virtual void Step(std::span<float> params, std::span<const float> gradient, double lr,
                    float gradient_scale, const StepProgress& progress = {}) = 0;
  static constexpr std::int64_t kPiece = 32768;  // 0.5 MB with gradient and two states

  // Call after Step() and all other changes of the parameters in an update: updates the averages
  // (rules.h). Does nothing without spec.ema.
  void Average(std::span<const float> params);
  // Swaps parameters and averages. false: there are no averages (yet); nothing was changed.
  [[nodiscard]] bool ExchangeAverages(std::span<float> params);

  // Updates done so far. A checkpoint saves this and state().
  [[nodiscard]] std::int64_t updates() const { return updates_; }
  void set_updates(std::int64_t updates) { updates_ = updates; }
  // Sticky: whether an update of this object made a parameter non-finite. The loss alone may not
  // show it: max(NaN, 0) of a ReLU can be 0.
  [[nodiscard]] bool parameters_not_finite() const { return parameters_not_finite_; }
  // StateElements() values: the first state buffer of all parameters, then the second one, then the
  // averages. Initially zero.
  [[nodiscard]] std::span<float> state() { return state_; }

 protected:
  Optimizer(OptimizerRanges ranges, std::span<float> state, std::optional<EmaSpec> ema)
      : ranges_(std::move(ranges)), state_(state), ema_(ema) {}

  OptimizerRanges ranges_;
  std::int64_t updates_ = 0;
  bool parameters_not_finite_ = false;
  std::span<float> state_;

 private:
  [[nodiscard]] float* averages() {
    return state_.last(static_cast<std::size_t>(ranges_.elements())).data();
  }

  std::optional<EmaSpec> ema_;
};

// `state` is memory of the caller: zeroed or restored, with exactly StateElements() values; must
// outlive the optimiser. kConfig: a rate, momentum, beta, epsilon or decay is out of range;
// kInternal: more than 2^59 parameters, or a wrong size of the state.
Result<std::unique_ptr<Optimizer>> MakeOptimizer(const OptimizerSpec& spec, OptimizerRanges ranges,
                                                 std::span<float> state);

}  // namespace gaccd
