#include "daemon/metrics/metric.h"

#include <utility>
#include <variant>

#include "collectives/base/overloaded.h"
#include "collectives/base/strings.h"
#include "daemon/metrics/class_metrics.h"
#include "daemon/metrics/target_metrics.h"

namespace gaccd {
namespace {

template <typename M, typename... Arguments>
NamedMetric Named(std::string name, Arguments&&... arguments) {
  return {std::move(name), std::make_unique<M>(std::forward<Arguments>(arguments)...)};
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
  const auto of_counts = [&](std::string name, ValueOfCounts value) {
    return Named<OfClassCounts>(std::move(name), sample.classes, value);
  };
  return std::visit(
      Overloaded{[](const AccuracySpec&) { return Named<TopK>("accuracy", 1); },
                 [](const TopKSpec& top) { return Named<TopK>(StrCat("top_", top.k), top.k); },
                 [&](const F1MacroSpec&) { return of_counts("f1_macro", F1Macro); },
                 [&](const F1MicroSpec&) { return of_counts("f1_micro", F1Micro); },
                 [&](const MatthewsSpec&) { return of_counts("matthews", Matthews); },
                 [](const PerplexitySpec&) { return Named<Perplexity>("perplexity"); },
                 [](const MseSpec&) { return Named<MeanOfErrors>("mse", Square); },
                 [](const MaeSpec&) { return Named<MeanOfErrors>("mae", Size); },
                 [&](const R2Spec&) { return Named<R2>("r2", near); }},
      spec);
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
