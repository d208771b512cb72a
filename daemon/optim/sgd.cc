#include "daemon/optim/sgd.h"

#include "collectives/base/simd.h"
#include "daemon/optim/rules.h"

namespace gaccd {

GACCD_SIMD_CLONES
void PlainSgd::Loop(SgdFactors f, std::size_t n, const float* __restrict g, float* __restrict p) {
  for (std::size_t i = 0; i < n; ++i) Update(f, g[i], p + i);
}

GACCD_SIMD_CLONES
void MomentumSgd::Loop(SgdFactors f, std::size_t n, const float* __restrict g, float* __restrict p,
                       float* __restrict m) {
  for (std::size_t i = 0; i < n; ++i) Update(f, g[i], p + i, m + i);
}

GACCD_SIMD_CLONES
void NesterovSgd::Loop(SgdFactors f, std::size_t n, const float* __restrict g, float* __restrict p,
                       float* __restrict m) {
  for (std::size_t i = 0; i < n; ++i) Update(f, g[i], p + i, m + i);
}

SgdFactors Sgd::MakeFactors(const SgdSpec& spec, const OptimizerGroup& group, double lr,
                            std::int64_t /*update*/) {
  return {static_cast<float>(lr * group.lr_factor), static_cast<float>(spec.momentum),
          static_cast<float>(group.weight_decay.value_or(spec.weight_decay)), 1};
}

Status Sgd::Check(const SgdSpec& spec) {
  GACCD_RETURN_IF_ERROR(CheckNotNegative("sgd momentum", spec.momentum));
  GACCD_RETURN_IF_ERROR(CheckNotNegative("sgd weight_decay", spec.weight_decay));
  if (!spec.nesterov || spec.momentum > 0) return Status::Ok();
  return {ErrorKind::kConfig, "optimizer: sgd nesterov needs a momentum > 0, found 0"};
}

}  // namespace gaccd
