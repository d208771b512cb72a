#include <cmath>
#include <cstddef>

#include "collectives/base/simd.h"
#include "collectives/base/strings.h"
#include "daemon/optim/rules.h"

namespace gaccd {
namespace {

GACCD_SIMD_CLONES
void PlainLoop(SgdFactors f, std::size_t n, const float* __restrict g, float* __restrict p) {
  for (std::size_t i = 0; i < n; ++i) SgdUpdate(f, g[i], p + i);
}

GACCD_SIMD_CLONES
void MomentumLoop(SgdFactors f, std::size_t n, const float* __restrict g, float* __restrict p,
                  float* __restrict m) {
  for (std::size_t i = 0; i < n; ++i) SgdMomentumUpdate(f, g[i], p + i, m + i);
}

GACCD_SIMD_CLONES
void NesterovLoop(SgdFactors f, std::size_t n, const float* __restrict g, float* __restrict p,
                  float* __restrict m) {
  for (std::size_t i = 0; i < n; ++i) SgdNesterovUpdate(f, g[i], p + i, m + i);
}

class Sgd final : public Optimizer {
 public:
  Sgd(const SgdSpec& spec, OptimizerRanges ranges, std::span<float> state)
      : Optimizer(std::move(ranges), state), spec_(spec) {}

  [[nodiscard]] std::string_view name() const override { return "sgd"; }

  void Step(std::span<float> params, std::span<const float> gradient, double lr,
            float gradient_scale) override {
    for (const OptimizerRange& range : ranges_.all()) {
      SgdFactors f = FactorsOf(spec_, range.group, lr);
      f.gradient_scale = gradient_scale;
      StepRange(f, range, params.data() + range.first, gradient.data() + range.first);
    }
    ++updates_;
  }

 private:
  void StepRange(const SgdFactors& f, const OptimizerRange& range, float* p, const float* g) {
    const auto n = static_cast<std::size_t>(range.elements);
    switch (RuleOf(spec_)) {
      case SgdRule::kPlain:
        return PlainLoop(f, n, g, p);
      case SgdRule::kMomentum:
        return MomentumLoop(f, n, g, p, state_.data() + range.state_first);
      case SgdRule::kNesterov:
        return NesterovLoop(f, n, g, p, state_.data() + range.state_first);
    }
  }

  SgdSpec spec_;
};

}  // namespace

SgdRule RuleOf(const SgdSpec& spec) {
  if (spec.momentum == 0) return SgdRule::kPlain;
  return spec.nesterov ? SgdRule::kNesterov : SgdRule::kMomentum;
}

SgdFactors FactorsOf(const SgdSpec& spec, const OptimizerGroup& group, double lr) {
  return {static_cast<float>(lr * group.lr_factor), static_cast<float>(spec.momentum),
          static_cast<float>(group.weight_decay.value_or(spec.weight_decay)), 1};
}

Status CheckSgd(const SgdSpec& spec) {
  if (!(spec.momentum >= 0) || !std::isfinite(spec.momentum)) {
    return {ErrorKind::kConfig,
            StrCat("optimizer: sgd momentum must be >= 0 and finite, found ", spec.momentum)};
  }
  if (!(spec.weight_decay >= 0) || !std::isfinite(spec.weight_decay)) {
    return {
        ErrorKind::kConfig,
        StrCat("optimizer: sgd weight_decay must be >= 0 and finite, found ", spec.weight_decay)};
  }
  if (spec.nesterov && spec.momentum == 0) {
    return {ErrorKind::kConfig, "optimizer: sgd nesterov needs a momentum > 0, found 0"};
  }
  return Status::Ok();
}

std::unique_ptr<Optimizer> MakeSgd(const SgdSpec& spec, OptimizerRanges ranges,
                                   std::span<float> state) {
  return std::make_unique<Sgd>(spec, std::move(ranges), state);
}

}  // namespace gaccd
