#include "daemon/optim/adamw.h"

#include <cmath>
#include <utility>

#include "collectives/base/simd.h"
#include "daemon/optim/rules.h"

namespace gaccd {

GACCD_SIMD_CLONES
void AdamW::Loop(AdamWFactors f, std::size_t n, const float* __restrict g, float* __restrict p,
                 float* __restrict m, float* __restrict v) {
  for (std::size_t i = 0; i < n; ++i) Update(f, g[i], p + i, m + i, v + i);
}

AdamWFactors AdamW::MakeFactors(const AdamWSpec& spec, const OptimizerGroup& group,
                                double update_lr, std::int64_t update) {
  const double lr = update_lr * group.lr_factor;
  const double decay = group.weight_decay.value_or(spec.weight_decay);
  const auto t = static_cast<double>(update);
  return {
      .beta1 = static_cast<float>(spec.beta1),
      .one_minus_beta1 = static_cast<float>(1 - spec.beta1),
      .beta2 = static_cast<float>(spec.beta2),
      .one_minus_beta2 = static_cast<float>(1 - spec.beta2),
      .keep = static_cast<float>(1 - lr * decay),
      .step_size = static_cast<float>(lr / (1 - std::pow(spec.beta1, t))),
      .root_scale = static_cast<float>(1 / std::sqrt(1 - std::pow(spec.beta2, t))),
      .epsilon = static_cast<float>(spec.epsilon),
      .gradient_scale = 1,
  };
}

Status AdamW::Check(const AdamWSpec& spec) {
  for (const auto& [name, beta] :
       {std::pair("beta1", spec.beta1), std::pair("beta2", spec.beta2)}) {
    if (beta >= 0 && beta < 1) continue;
    return {ErrorKind::kConfig,
            StrCat("optimizer: adamw ", name, " must be >= 0 and < 1, found ", beta)};
  }
  GACCD_RETURN_IF_ERROR(CheckEpsilon("adamw", spec.epsilon));
  return CheckNotNegative("adamw weight_decay", spec.weight_decay);
}

}  // namespace gaccd
