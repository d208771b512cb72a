// Metric: a value of a whole evaluation, computed from sums over the batches of every rank. Not
// thread-safe.
//
//   name        for       value
//   accuracy    labels    share of labels equal to the model's answer
//   top_K       labels    share of labels among the K largest logits
//   f1_micro    labels    F1 over all classes together: the accuracy, as every label has one answer
//   f1_macro    labels    mean of F1 = 2 TP / (2 TP + FP + FN) over the classes that occur in the
//                         labels or answers, like scikit-learn's f1_score(average="macro")
//   matthews    labels    correlation of labels and answers over K classes (Gorodkin 2004), like
//                         scikit-learn's matthews_corrcoef; 0 if one of them is constant
//   perplexity  labels    exp of the loss
//   mse, mae    targets   mean of the squares, or absolute values, of all errors
//   r2          targets   mean over the outputs of 1 - sum (t - y)^2 / sum (t - mean t)^2, like
//                         scikit-learn's r2_score; for constant t 1 if y = t, else 0
//
// NaN if no prediction counts.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "collectives/base/result.h"
#include "collectives/comm/communicator.h"
#include "daemon/config/job.h"
#include "daemon/tensor/sample.h"

namespace gaccd {

// For class labels the first five members are set, for targets the next two.
struct EvaluatedBatch {
  std::span<const std::int32_t> labels;  // one per row, like the next three
  std::span<const float> weights;        // of the loss; empty: all 1
  std::span<const std::int32_t> ranks;   // ranks and best: ops/loss/label_ranks.h
  std::span<const std::int32_t> best;
  std::int32_t ignored_label = kIgnoredLabel;
  std::span<const float> targets;  // [samples, width]
  std::span<const float> prediction;
  double loss_sum = 0;
  double divisor = 0;

  [[nodiscard]] bool Counts(std::size_t row) const {
    return labels[row] != ignored_label && (weights.empty() || weights[row] != 0);
  }
};

class Metric {
 public:
  virtual ~Metric() = default;

  virtual void Add(const EvaluatedBatch& batch) = 0;
  // Summed over the ranks element by element; the sizes are equal on all of them.
  [[nodiscard]] virtual std::span<std::int64_t> counts() { return {}; }
  [[nodiscard]] virtual std::span<double> sums() { return {}; }
  [[nodiscard]] virtual double Value() const = 0;
};

// The metrics of a job without `metric`: accuracy for labels, also perplexity if tokens have
// labels; none for targets.
[[nodiscard]] std::vector<MetricSpec> DefaultMetrics(const SampleSpec& sample);

struct NamedMetric {
  std::string name;  // DescribeMetric()
  std::unique_ptr<Metric> metric;
};

// near: a value near the targets of every output, equal on all ranks (see R2). REQUIRES: the metric
// is defined for the labels or targets of `sample`.
[[nodiscard]] NamedMetric MakeMetric(const MetricSpec& spec, const SampleSpec& sample,
                                     std::span<const float> near);

// Collective. REQUIRES: all ranks have the same metrics. Afterwards their values are equal.
Status SumOverRanks(std::span<const NamedMetric> metrics, Communicator& comm);

}  // namespace gaccd
