#include "daemon/optim/adagrad.h"

#include "collectives/base/simd.h"
#include "daemon/optim/rules.h"

namespace gaccd {

GACCD_SIMD_CLONES
void Adagrad::Loop(AdagradFactors f, std::size_t n, const float* __restrict g, float* __restrict p,
                   float* __restrict s) {
  for (std::size_t i = 0; i < n; ++i) Update(f, g[i], p + i, s + i);
}

AdagradFactors Adagrad::MakeFactors(const AdagradSpec& spec, const OptimizerGroup& group, double lr,
                                    std::int64_t update) {
  const double slower = 1 + static_cast<double>(update - 1) * spec.lr_decay;
  return {.step_size = static_cast<float>(lr * group.lr_factor / slower),
          .weight_decay = static_cast<float>(group.weight_decay.value_or(spec.weight_decay)),
          .epsilon = static_cast<float>(spec.epsilon),
          .gradient_scale = 1};
}

Status Adagrad::Check(const AdagradSpec& spec) {
  GACCD_RETURN_IF_ERROR(CheckNotNegative("adagrad lr_decay", spec.lr_decay));
  GACCD_RETURN_IF_ERROR(CheckNotNegative("adagrad weight_decay", spec.weight_decay));
  return CheckEpsilon("adagrad", spec.epsilon);
}

}  // namespace gaccd
