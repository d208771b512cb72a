#include "daemon/optim/optimizer.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "collectives/base/strings.h"
#include "daemon/optim/rules.h"
#include "daemon/tensor/float_types.h"

namespace gaccd {

namespace {

template <typename Rule>
class RuleOptimizer final : public Optimizer {
 public:
  RuleOptimizer(const typename Rule::Spec& spec, OptimizerRanges ranges, std::span<float> state,
                std::optional<EmaSpec> ema)
      : Optimizer(std::move(ranges), state, ema), spec_(spec) {}

  void Step(std::span<float> params, std::span<const float> gradient, double lr,
            float gradient_scale, const StepProgress& progress) override {
    ++updates_;
    for (const OptimizerRange& range : ranges_.all()) {
      typename Rule::Factors f = Rule::MakeFactors(spec_, range.group, lr, updates_);
      f.gradient_scale = gradient_scale;
      for (std::int64_t done = 0; done < range.elements; done += kPiece) {
        const std::int64_t n = std::min(kPiece, range.elements - done);
        const std::int64_t first = range.first + done;
        float* const state =
            Rule::kStates == 0 ? nullptr : state_.data() + range.state_first + done;
        const auto changed =
            params.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(n));
        Update(f, changed.size(), gradient.data() + first, changed.data(), state);
        if (FirstNotFinite(changed) < changed.size()) parameters_not_finite_ = true;
        if (progress) progress(first + n);
      }
    }
  }

 private:
  static_assert(Rule::kStates <= 2);

  void Update(const typename Rule::Factors& f, std::size_t n, const float* g, float* p,
              float* state) {
    if constexpr (Rule::kStates == 0) Rule::Loop(f, n, g, p);
    if constexpr (Rule::kStates == 1) Rule::Loop(f, n, g, p, state);
    if constexpr (Rule::kStates == 2) Rule::Loop(f, n, g, p, state, state + ranges_.elements());
  }

  typename Rule::Spec spec_;
};

}  // namespace

void Optimizer::Average(std::span<const float> params) {
  if (!ema_) return;
  const float rate = AverageRate(*ema_, updates_);
  for (const OptimizerRange& range : ranges_.all()) {
    AverageLoop(rate, static_cast<std::size_t>(range.elements), params.data() + range.first,
                averages() + range.state_first);
  }
}

bool Optimizer::ExchangeAverages(std::span<float> params) {
  if (!ema_ || updates_ == 0) return false;
  for (const OptimizerRange& range : ranges_.all()) {
    float* const p = params.data() + range.first;
    std::swap_ranges(p, p + range.elements, averages() + range.state_first);
  }
  return true;
}

Status CheckOptimizer(const OptimizerSpec& spec, const OptimizerRanges& ranges) {
  const std::int64_t parameters = ranges.elements();
  if (parameters < 0 || parameters > std::numeric_limits<std::int64_t>::max() / 16) {
    return {ErrorKind::kInternal,
            StrCat("optimizer: the number of parameters must be 0..2^59, found ", parameters)};
  }
  if (!(spec.lr >= 0) || !std::isfinite(spec.lr)) {
    return {ErrorKind::kConfig, StrCat("optimizer: lr must be >= 0 and finite, found ", spec.lr)};
  }
  if (spec.ema && !(spec.ema->decay >= 0 && spec.ema->decay < 1)) {
    return {ErrorKind::kConfig,
            StrCat("optimizer: ema decay must be >= 0 and < 1, found ", spec.ema->decay)};
  }
  return WithRule(spec, [](auto rule, const auto& settings) { return rule.Check(settings); });
}

std::int64_t StateElements(const OptimizerSpec& spec, std::int64_t parameters) {
  const int states = WithRule(spec, [](auto rule, const auto&) { return rule.kStates; });
  return parameters * (states + (spec.ema ? 1 : 0));
}

Result<std::unique_ptr<Optimizer>> MakeOptimizer(const OptimizerSpec& spec, OptimizerRanges ranges,
                                                 std::span<float> state) {
  GACCD_RETURN_IF_ERROR(CheckOptimizer(spec, ranges));
  const std::int64_t expected = StateElements(spec, ranges.elements());
  if (std::ssize(state) != expected) {
    return Status(ErrorKind::kInternal, StrCat("optimizer: expected ", expected,
                                               " values of state, found ", state.size()));
  }
  return WithRule(spec, [&](auto rule, const auto& settings) -> std::unique_ptr<Optimizer> {
    return std::make_unique<RuleOptimizer<decltype(rule)>>(settings, std::move(ranges), state,
                                                           spec.ema);
  });
}

OptimizerRanges OptimizerRanges::Make(const FlatLayout& layout) {
  return Make(layout, {.elements = layout.size()});
}

OptimizerRanges OptimizerRanges::Make(const FlatLayout& layout, const ShardPart& part) {
  OptimizerRanges ranges;
  for (const FlatEntry& entry : layout.entries()) {
    const std::int64_t first = std::max(entry.offset - part.first, std::int64_t{0});
    const std::int64_t end =
        std::min(entry.offset + entry.padded_elements() - part.first, part.elements);
    if (entry.frozen || first >= end) continue;
    const std::int64_t elements = end - first;
    OptimizerRange* last = ranges.ranges_.empty() ? nullptr : &ranges.ranges_.back();
    if (last != nullptr && last->group == entry.group && last->first + last->elements == first) {
      last->elements += elements;
    } else {
      ranges.ranges_.push_back({first, elements, ranges.elements_, entry.group});
    }
    ranges.elements_ += elements;
  }
  return ranges;
}

OptimizerRanges OptimizerRanges::One(std::int64_t elements) {
  OptimizerRanges ranges;
  ranges.elements_ = elements;
  ranges.ranges_.push_back({.elements = elements});
  return ranges;
}

}  // namespace gaccd
