// Optimizer: turns the reduced gradient of one update into new parameters.
//
// Parameters and gradient are flat fp32 buffers of one length and one order (FlatLayout); the state
// has the same order without the frozen parameters, which nothing here touches. Places that belong
// to no parameter (alignment padding: value 0, gradient 0) stay 0. The semantics are those of
// torch.optim with parameter groups; each rule says which one (rules.h).
//
// The result is bit-identical on every machine, whichever SIMD clone runs: replicas on different
// CPUs must not drift apart. So nothing is contracted to fused multiply-add
// (daemon/optim/CMakeLists.txt). Used by one thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "collectives/base/result.h"
#include "daemon/config/job.h"
#include "daemon/optim/ranges.h"

namespace gaccd {

// fp32 values of state an optimiser keeps for so many parameters (FlatLayout::trainable_size()),
// with the average of each, if spec.ema is given; 4 bytes each. For the memory plan.
[[nodiscard]] std::int64_t StateElements(const OptimizerSpec& spec, std::int64_t parameters);

// Called as Step() goes: the parameters before element `end` have their new values.
using StepProgress = std::function<void(std::int64_t end)>;

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  [[nodiscard]] virtual std::string_view name() const = 0;  // "sgd", "adamw"

  // One update. `lr` is the learning rate of this update, warm-up and rule included. Every gradient
  // value is multiplied by gradient_scale (the clip factor; 1 = not clipped) as it is read.
  // Only the values of ranges() are read and written. `progress`, unless empty, is called every
  // kPiece elements at most, while the caches hold them.
  // REQUIRES: params.size() == gradient.size(), the ranges lie within; the buffers do not overlap.
  virtual void Step(std::span<float> params, std::span<const float> gradient, double lr,
                    float gradient_scale, const StepProgress& progress = {}) = 0;
  static constexpr std::int64_t kPiece = 32768;  // 0.5 MB with gradient and two states

  // After Step() and what else changes parameters in an update: they go into their averages
  // (average.h). Nothing without spec.ema.
  void Average(std::span<const float> params);
  // Parameters and averages change places. false: there are no averages (yet), nothing was changed.
  [[nodiscard]] bool ExchangeAverages(std::span<float> params);

  [[nodiscard]] const OptimizerRanges& ranges() const { return ranges_; }
  // Updates done so far; with state(), all that a checkpoint has to keep.
  [[nodiscard]] std::int64_t updates() const { return updates_; }
  void set_updates(std::int64_t updates) { updates_ = updates; }
  // StateElements() values: those of all parameters, then the second ones of all, at last the
  // averages. Zero at the start.
  [[nodiscard]] std::span<float> state() { return state_; }

 protected:
  Optimizer(OptimizerRanges ranges, std::span<float> state, std::optional<EmaSpec> ema)
      : ranges_(std::move(ranges)), state_(state), ema_(ema) {}

  OptimizerRanges ranges_;
  std::int64_t updates_ = 0;
  std::span<float> state_;

 private:
  [[nodiscard]] float* averages() {
    return state_.last(static_cast<std::size_t>(ranges_.elements())).data();
  }

  std::optional<EmaSpec> ema_;
};

// Over memory of the caller for the state, which must be zeroed (or restored), outlive the
// optimiser and hold exactly StateElements() values. Error kConfig: a rate, momentum, beta, epsilon
// or decay out of its range; kInternal: more than 2^59 parameters, or another size of the state.
Result<std::unique_ptr<Optimizer>> MakeOptimizer(const OptimizerSpec& spec, OptimizerRanges ranges,
                                                 std::span<float> state);

}  // namespace gaccd
