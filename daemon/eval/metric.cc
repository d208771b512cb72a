#include "daemon/eval/metric.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>
#include <variant>

#include "collectives/base/overloaded.h"

namespace gaccd {

namespace {

// Metrics for class labels, defined in metric.h.
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

double Ratio(std::int64_t part, std::int64_t all) {
  return static_cast<double>(part) / static_cast<double>(all);
}

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
    return std::transform_reduce(a.begin(), a.end(), b.begin(), 0.0, std::plus<>(),
                                 [](std::int64_t x, std::int64_t y) {
                                   return static_cast<double>(x) * static_cast<double>(y);
                                 });
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

// Metrics for targets, defined in metric.h.

// The mean over all outputs of a function of t - y.
class MeanError final : public Metric {
 public:
  using ErrorFunction = double (*)(double error);
  explicit MeanError(ErrorFunction function) : function_(function) {}
  void Add(const EvaluatedBatch& batch) override;
  [[nodiscard]] std::span<double> sums() override { return sums_; }
  [[nodiscard]] double Value() const override;

 private:
  ErrorFunction function_;
  std::array<double, 2> sums_ = {};  // function values, their number
};

class R2 final : public Metric {
 public:
  // near: a value near the targets of every output. The rounding errors of the sums of squares grow
  // with the distance of the targets from it.
  explicit R2(std::span<const float> near);
  void Add(const EvaluatedBatch& batch) override;
  [[nodiscard]] std::span<double> sums() override { return sums_; }
  [[nodiscard]] double Value() const override;

 private:
  // Sums of d, d^2 and (t - y)^2, where d = t - near.
  static constexpr std::size_t kSums = 3;
  std::vector<double> near_;
  std::vector<double> sums_;  // [outputs, kSums], then the number of samples
};

double SquaredError(double error) { return error * error; }
double AbsoluteError(double error) { return std::abs(error); }

void MeanError::Add(const EvaluatedBatch& batch) {
  for (std::size_t i = 0; i < batch.targets.size(); ++i) {
    sums_[0] += function_(double{batch.targets[i]} - double{batch.prediction[i]});
  }
  sums_[1] += static_cast<double>(batch.targets.size());
}

double MeanError::Value() const { return sums_[0] / sums_[1]; }

R2::R2(std::span<const float> near)
    : near_(near.begin(), near.end()), sums_(near.size() * kSums + 1) {}

void R2::Add(const EvaluatedBatch& batch) {
  const std::size_t outputs = near_.size();
  for (std::size_t i = 0; i < batch.targets.size(); ++i) {
    const double t = batch.targets[i];
    const double d = t - near_[i % outputs];
    const double error = t - double{batch.prediction[i]};
    double* sums = &sums_[i % outputs * kSums];
    sums[0] += d;
    sums[1] += d * d;
    sums[2] += error * error;
  }
  sums_.back() += static_cast<double>(batch.targets.size() / outputs);
}

double R2::Value() const {
  double value = 0;
  for (std::size_t n = 0; n < near_.size(); ++n) {
    const double* sums = &sums_[n * kSums];
    const double spread =
        std::max(sums[1] - sums[0] * sums[0] / sums_.back(), 0.0);  // NaN stays NaN
    const double constant_value = sums[2] == 0 ? 1 : 0;
    value += spread == 0 ? constant_value : 1 - sums[2] / spread;
  }
  return value / static_cast<double>(near_.size());
}

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
