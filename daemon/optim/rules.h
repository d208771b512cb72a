// The rules of all optimisers: the update of one parameter, shared by CPU and GPU. A rule is a
// struct of static members, for example in adamw.h:
//   Spec, Factors     settings; the floats that the formula needs for one update of a group
//   kName, kStates    "adamw"; number of state floats per parameter
//   Check             validates a Spec: kConfig with the offending value
//   MakeFactors         factors for update 1, 2, ... and its learning rate; gradient_scale 1
//   Update, Loop      the formula, without calls of std:: (state after `param`); a loop over n
//                     parameters, with SIMD clones, compiled as CMakeLists.txt says
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <variant>

#include "collectives/base/overloaded.h"
#include "collectives/base/result.h"
#include "collectives/base/strings.h"
#include "daemon/config/job.h"
#include "daemon/optim/adagrad.h"
#include "daemon/optim/adamw.h"
#include "daemon/optim/optimizer.h"
#include "daemon/optim/sgd.h"
#include "daemon/tensor/host_device.h"

namespace gaccd {

// Calls use(rule, spec) with the rule of this optimiser.
template <typename Use>
auto WithRule(const OptimizerSpec& optimizer, const Use& use) {
  return std::visit(Overloaded{[&](const SgdSpec& spec) {
                                 if (spec.momentum == 0) return use(PlainSgd(), spec);
                                 if (spec.nesterov) return use(NesterovSgd(), spec);
                                 return use(MomentumSgd(), spec);
                               },
                               [&](const AdamWSpec& spec) { return use(AdamW(), spec); },
                               [&](const AdagradSpec& spec) { return use(Adagrad(), spec); }},
                    optimizer.kind);
}

// Checks that the settings are in range; kInternal: more than 2^59 parameters.
Status CheckOptimizer(const OptimizerSpec& spec, const OptimizerRanges& ranges);

// Checks of optimiser settings; kConfig with the name and the value.

// name: for example "sgd momentum".
inline Status CheckNotNegative(std::string_view name, double value) {
  if (value >= 0 && std::isfinite(value)) return Status::Ok();
  return {ErrorKind::kConfig,
          StrCat("optimizer: ", name, " must be >= 0 and finite, found ", value)};
}

// Checks the value as a float: an epsilon that rounds to 0 would divide 0 by 0.
inline Status CheckEpsilon(std::string_view name, double value) {
  if (static_cast<float>(value) > 0 && std::isfinite(value)) return Status::Ok();
  return {ErrorKind::kConfig,
          StrCat("optimizer: ", name, " epsilon must be > 0 and finite, found ", value)};
}

// Exponential moving average of weights, equal to torch.optim.swa_utils.AveragedModel with
// get_ema_multi_avg_fn(decay), updated after every optimizer.step(). After update t:
//   t = 1: a = w;   t > 1: a = a + (1 - decay) (w - a), which is decay a + (1 - decay) w

// The factor of w - a. 1 replaces the average.
[[nodiscard]] inline float AverageRate(const EmaSpec& ema, std::int64_t update) {
  return update == 1 ? 1.0F : static_cast<float>(1 - ema.decay);
}

GACCD_HOST_DEVICE inline void AddToAverage(float rate, float weight, float* average) {
  *average += rate * (weight - *average);
}
void AverageLoop(float rate, std::size_t n, const float* weights, float* averages);

}  // namespace gaccd
