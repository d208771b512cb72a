// Metric: a value of a whole evaluation, from sums that every rank takes over its own batches. Used
// by one thread.
//
//   name        for       value
//   accuracy    labels    the share of labels that are the model's answer
//   top_K       labels    the share of labels among the K largest logits
//   f1_micro    labels    F1 over all classes together: with one answer a label, the accuracy
//   f1_macro    labels    the mean of F1 = 2 TP / (2 TP + FP + FN) over the classes that are among
//                         the labels or the answers, as scikit-learn's f1_score(average="macro")
//   matthews    labels    the correlation of labels and answers over K classes (Gorodkin 2004), as
//                         scikit-learn's matthews_corrcoef; 0 where one of them never changes
//   perplexity  labels    exp of the loss
//   mse, mae    targets   the mean of the squares, and of the sizes, of all errors
//   r2          targets   the mean over the outputs of 1 - sum (t - y)^2 / sum (t - mean t)^2, as
//                         scikit-learn's r2_score; where t never changes 1 if y = t, else 0
//
// NaN where nothing counts.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "collectives/base/result.h"
#include "collectives/comm/communicator.h"
#include "daemon/config/job.h"
#include "daemon/config/metric_kind.h"
#include "daemon/tensor/sample.h"

namespace gaccd {

// Of class labels the first five, of targets the next two; the others are empty.
struct EvaluatedBatch {
  std::span<const std::int32_t> labels;  // one a row, as the next three
  std::span<const float> weights;        // of the loss; empty: all 1
  std::span<const std::int32_t> ranks;   // ops/loss/label_ranks.h, as the next
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
  // What the ranks add up, element by element; of the same sizes on all of them.
  [[nodiscard]] virtual std::span<std::int64_t> counts() { return {}; }
  [[nodiscard]] virtual std::span<double> sums() { return {}; }
  [[nodiscard]] virtual double Value() const = 0;
};

// What a job gets that names no metric: accuracy for labels, perplexity as well for those of
// tokens, nothing for targets.
[[nodiscard]] std::vector<MetricSpec> DefaultMetrics(const SampleSpec& sample);

struct NamedMetric {
  std::string name;  // DescribeMetric()
  std::unique_ptr<Metric> metric;
};

// `near`: for every output a value near its targets, the same on all ranks (see R2). REQUIRES: the
// metric is one for the labels or targets of `sample`.
[[nodiscard]] NamedMetric MakeMetric(const MetricSpec& spec, const SampleSpec& sample,
                                     std::span<const float> near);

// Collective: every rank has the same metrics, and then the same values.
Status SumOverRanks(std::span<const NamedMetric> metrics, Communicator& comm);

}  // namespace gaccd
