#include "daemon/eval/class_metrics.h"

#include <cmath>
#include <numeric>
#include <utility>

namespace gaccd {
namespace {

double Ratio(std::int64_t part, std::int64_t all) {
  return static_cast<double>(part) / static_cast<double>(all);
}

}  // namespace

void TopK::Add(const EvaluatedBatch& batch) {
  for (std::size_t i = 0; i < batch.labels.size(); ++i) {
    if (!batch.Counts(i)) continue;
    counts_[0] += batch.ranks[i] < k_ ? 1 : 0;
    ++counts_[1];
  }
}

double TopK::Value() const { return Ratio(counts_[0], counts_[1]); }

ClassCountMetric::ClassCountMetric(std::int64_t classes, CountsFunction value)
    : classes_(static_cast<std::size_t>(classes)), value_(value), counts_(3 * (classes_ + 1)) {}

void ClassCountMetric::Add(const EvaluatedBatch& batch) {
  const auto labels = std::span(counts_).first(classes_ + 1);
  const auto answers = std::span(counts_).subspan(classes_ + 1, classes_ + 1);
  const auto right = std::span(counts_).last(classes_ + 1);
  for (std::size_t i = 0; i < batch.labels.size(); ++i) {
    if (!batch.Counts(i)) continue;
    const auto label = static_cast<std::size_t>(batch.labels[i]);
    const bool is_class = batch.best[i] >= 0 && std::cmp_less(batch.best[i], classes_);
    const std::size_t answer = is_class ? static_cast<std::size_t>(batch.best[i]) : classes_;
    ++labels[label];
    ++answers[answer];
    right[label] += answer == label ? 1 : 0;
  }
}

double ClassCountMetric::Value() const {
  const std::span all(counts_);
  return value_({.labels = all.first(classes_ + 1),
                 .answers = all.subspan(classes_ + 1, classes_ + 1),
                 .right = all.last(classes_ + 1)});
}

double F1Macro(const ClassCounts& counts) {
  double sum = 0;
  std::int64_t classes = 0;
  for (std::size_t c = 0; c + 1 < counts.labels.size(); ++c) {
    const std::int64_t both = counts.labels[c] + counts.answers[c];
    if (both == 0) continue;
    sum += Ratio(2 * counts.right[c], both);
    ++classes;
  }
  return sum / static_cast<double>(classes);
}

// Every label has one answer, so precision, recall and F1 are equal.
double F1Micro(const ClassCounts& counts) {
  return Ratio(std::reduce(counts.right.begin(), counts.right.end()),
               std::reduce(counts.labels.begin(), counts.labels.end()));
}

double Matthews(const ClassCounts& counts) {
  const auto dot = [](std::span<const std::int64_t> a, std::span<const std::int64_t> b) {
    return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
  };
  const auto all = static_cast<double>(std::reduce(counts.labels.begin(), counts.labels.end()));
  const auto right = static_cast<double>(std::reduce(counts.right.begin(), counts.right.end()));
  if (all == 0) return NAN;
  const double spread = (all * all - dot(counts.answers, counts.answers)) *
                        (all * all - dot(counts.labels, counts.labels));
  if (spread == 0) return 0;
  return (right * all - dot(counts.labels, counts.answers)) / std::sqrt(spread);
}

void Perplexity::Add(const EvaluatedBatch& batch) {
  sums_[0] += batch.loss_sum;
  sums_[1] += batch.divisor;
}

double Perplexity::Value() const { return std::exp(sums_[0] / sums_[1]); }

}  // namespace gaccd
