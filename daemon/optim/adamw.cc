#include <cmath>
#include <cstddef>

#include "collectives/base/simd.h"
#include "collectives/base/strings.h"
#include "daemon/optim/rules.h"

namespace gaccd {
namespace {

GACCD_SIMD_CLONES
void AdamWLoop(AdamWFactors f, std::size_t n, const float* __restrict g, float* __restrict p,
               float* __restrict m, float* __restrict v) {
  for (std::size_t i = 0; i < n; ++i) AdamWUpdate(f, g[i], p + i, m + i, v + i);
}

class AdamW final : public Optimizer {
 public:
  AdamW(const AdamWSpec& spec, OptimizerRanges ranges, std::span<float> state)
      : Optimizer(std::move(ranges), state), spec_(spec) {}

  [[nodiscard]] std::string_view name() const override { return "adamw"; }

  void Step(std::span<float> params, std::span<const float> gradient, double lr,
            float gradient_scale) override {
    ++updates_;
    for (const OptimizerRange& range : ranges_.all()) {
      AdamWFactors f = FactorsOf(spec_, range.group, lr, updates_);
      f.gradient_scale = gradient_scale;
      float* const first = state_.data() + range.state_first;
      AdamWLoop(f, static_cast<std::size_t>(range.elements), gradient.data() + range.first,
                params.data() + range.first, first, first + ranges_.elements());
    }
  }

 private:
  AdamWSpec spec_;
};

Status CheckBeta(const char* name, double beta) {
  if (beta >= 0 && beta < 1) return Status::Ok();
  return {ErrorKind::kConfig,
          StrCat("optimizer: adamw ", name, " must be >= 0 and < 1, found ", beta)};
}

}  // namespace

AdamWFactors FactorsOf(const AdamWSpec& spec, const OptimizerGroup& group, double update_lr,
                       std::int64_t update) {
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

Status CheckAdamW(const AdamWSpec& spec) {
  GACCD_RETURN_IF_ERROR(CheckBeta("beta1", spec.beta1));
  GACCD_RETURN_IF_ERROR(CheckBeta("beta2", spec.beta2));
  // As a float, too: an epsilon that rounds to 0 would divide 0 by 0.
  if (!(static_cast<float>(spec.epsilon) > 0) || !std::isfinite(spec.epsilon)) {
    return {ErrorKind::kConfig,
            StrCat("optimizer: adamw epsilon must be > 0 and finite, found ", spec.epsilon)};
  }
  if (!(spec.weight_decay >= 0) || !std::isfinite(spec.weight_decay)) {
    return {
        ErrorKind::kConfig,
        StrCat("optimizer: adamw weight_decay must be >= 0 and finite, found ", spec.weight_decay)};
  }
  return Status::Ok();
}

std::unique_ptr<Optimizer> MakeAdamW(const AdamWSpec& spec, OptimizerRanges ranges,
                                     std::span<float> state) {
  return std::make_unique<AdamW>(spec, std::move(ranges), state);
}

}  // namespace gaccd
