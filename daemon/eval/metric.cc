#include "daemon/eval/metric.h"

#include <utility>
#include <variant>

#include "collectives/base/overloaded.h"
#include "daemon/eval/class_metrics.h"
#include "daemon/eval/target_metrics.h"

namespace gaccd {
namespace {

using MadeMetric = std::unique_ptr<Metric>;

template <typename M, typename... Arguments>
MadeMetric Make(Arguments&&... arguments) {
  return std::make_unique<M>(std::forward<Arguments>(arguments)...);
}

}  // namespace

std::vector<MetricSpec> DefaultMetrics(const SampleSpec& sample) {
  const TensorSpec* labels = sample.Find("labels");
  if (labels == nullptr) return {};
  if (labels->shape.empty()) return {AccuracySpec{}};
  return {AccuracySpec{}, PerplexitySpec{}};
}

NamedMetric MakeMetric(const MetricSpec& spec, const SampleSpec& sample,
                       std::span<const float> near) {
  const auto make_count_metric = [&](CountsFunction value) {
    return Make<ClassCountMetric>(sample.classes, value);
  };
  return {DescribeMetric(spec).name,
          std::visit(Overloaded{[](const AccuracySpec&) { return Make<TopK>(1); },
                                [](const TopKSpec& top) { return Make<TopK>(top.k); },
                                [&](const F1MacroSpec&) { return make_count_metric(F1Macro); },
                                [&](const F1MicroSpec&) { return make_count_metric(F1Micro); },
                                [&](const MatthewsSpec&) { return make_count_metric(Matthews); },
                                [](const PerplexitySpec&) { return Make<Perplexity>(); },
                                [](const MseSpec&) { return Make<MeanError>(SquaredError); },
                                [](const MaeSpec&) { return Make<MeanError>(AbsoluteError); },
                                [&](const R2Spec&) { return Make<R2>(near); }},
                     spec)};
}

Status SumOverRanks(std::span<const NamedMetric> metrics, Communicator& comm) {
  std::vector<MutableBuffer> buffers;
  for (const NamedMetric& named : metrics) {
    if (const auto counts = named.metric->counts(); !counts.empty()) {
      buffers.push_back(View(counts));
    }
    if (const auto sums = named.metric->sums(); !sums.empty()) buffers.push_back(View(sums));
  }
  return comm.AllReduceSums(buffers);
}

}  // namespace gaccd
