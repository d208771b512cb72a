#include "daemon/config/metric_kind.h"

#include <cstddef>
#include <variant>

#include "collectives/base/overloaded.h"
#include "collectives/base/strings.h"

namespace gaccd {

MetricKind DescribeMetric(const MetricSpec& spec) {
  using enum Better;
  using enum MetricInput;
  return std::visit(
      Overloaded{
          [](const AccuracySpec&) { return MetricKind("accuracy", kLarger, kLabels); },
          [](const TopKSpec& top) { return MetricKind(StrCat("top_", top.k), kLarger, kLabels); },
          [](const F1MacroSpec&) { return MetricKind("f1_macro", kLarger, kLabels); },
          [](const F1MicroSpec&) { return MetricKind("f1_micro", kLarger, kLabels); },
          [](const MatthewsSpec&) { return MetricKind("matthews", kLarger, kLabels); },
          [](const PerplexitySpec&) { return MetricKind("perplexity", kSmaller, kLabels); },
          [](const MseSpec&) { return MetricKind("mse", kSmaller, kTargets); },
          [](const MaeSpec&) { return MetricKind("mae", kSmaller, kTargets); },
          [](const R2Spec&) { return MetricKind("r2", kLarger, kTargets); }},
      spec);
}

std::vector<MetricSpec> AllMetrics() {
  return []<std::size_t... kind>(std::index_sequence<kind...>) {
    return std::vector<MetricSpec>{std::variant_alternative_t<kind, MetricSpec>()...};
  }
  (std::make_index_sequence<std::variant_size_v<MetricSpec>>());
}

}  // namespace gaccd
