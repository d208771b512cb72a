// Metrics for class labels, defined in metric.h.
#pragma once

#include <array>

#include "daemon/eval/metric.h"

namespace gaccd {

// k = 1: the accuracy.
class TopK final : public Metric {
 public:
  explicit TopK(std::int64_t k) : k_(k) {}
  void Add(const EvaluatedBatch& batch) override;
  [[nodiscard]] std::span<std::int64_t> counts() override { return counts_; }
  [[nodiscard]] double Value() const override;

 private:
  std::int64_t k_;
  std::array<std::int64_t, 2> counts_ = {};  // labels within the first k, all labels
};

// The counts for F1 and the correlation, by class. The last element counts predictions that are not
// a class: for rows with a NaN, and for logits beyond the classes (a padded vocabulary).
struct ClassCounts {
  std::span<const std::int64_t> labels;
  std::span<const std::int64_t> answers;
  std::span<const std::int64_t> right;
};
using CountsFunction = double (*)(const ClassCounts&);
[[nodiscard]] double F1Macro(const ClassCounts& counts);
[[nodiscard]] double F1Micro(const ClassCounts& counts);
[[nodiscard]] double Matthews(const ClassCounts& counts);

class ClassCountMetric final : public Metric {
 public:
  ClassCountMetric(std::int64_t classes, CountsFunction value);
  void Add(const EvaluatedBatch& batch) override;
  [[nodiscard]] std::span<std::int64_t> counts() override { return counts_; }
  [[nodiscard]] double Value() const override;

 private:
  std::size_t classes_;
  CountsFunction value_;
  std::vector<std::int64_t> counts_;  // the three lists of ClassCounts
};

class Perplexity final : public Metric {
 public:
  void Add(const EvaluatedBatch& batch) override;
  [[nodiscard]] std::span<double> sums() override { return sums_; }
  [[nodiscard]] double Value() const override;

 private:
  std::array<double, 2> sums_ = {};  // loss, divisor
};

}  // namespace gaccd
