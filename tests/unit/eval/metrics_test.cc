// Every metric against its definition, written out here for all answers at once; and what counts.
// Whole evaluations against scikit-learn: tests/numerics/metrics_golden_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>

#include "collectives/base/strings.h"
#include "collectives/comm/threads.h"
#include "daemon/eval/evaluator.h"
#include "daemon/eval/metric.h"
#include "daemon/tensor/random.h"
#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

constexpr std::int64_t kClasses = 7;
constexpr std::int32_t kIgnored = -100;

const std::vector<MetricSpec> kOfLabels = {AccuracySpec{}, TopKSpec{.k = 3}, F1MicroSpec{},
                                           F1MacroSpec{},  MatthewsSpec{},   PerplexitySpec{}};
const std::vector<MetricSpec> kOfTargets = {MseSpec{}, MaeSpec{}, R2Spec{}};

struct Answers {
  std::vector<std::int32_t> labels, ranks, best;
  std::vector<float> weights;
  std::vector<double> losses;

  // Rows [first, end).
  [[nodiscard]] EvaluatedBatch Batch(std::size_t first, std::size_t end) const {
    const auto part = [&](const auto& all) { return std::span(all).subspan(first, end - first); };
    EvaluatedBatch batch{.labels = part(labels),
                         .ranks = part(ranks),
                         .best = part(best),
                         .ignored_label = kIgnored};
    if (!weights.empty()) batch.weights = part(weights);
    for (std::size_t i = first; i < end; ++i) {
      const double weight = weights.empty() ? 1 : weights[i];
      if (labels[i] == kIgnored) continue;
      batch.loss_sum += weight * losses[i];
      batch.divisor += weight;
    }
    return batch;
  }
};

// Class 0 is rare, class 6 never a label; the answer is often one class too high, or none.
Answers RandomAnswers(std::size_t rows) {
  Answers answers;
  for (std::size_t i = 0; i < rows; ++i) {
    const std::uint64_t bits = StreamValue(StreamKey(9, 4), i);
    const auto label = static_cast<std::int32_t>(std::min(5UL, bits % 17));
    const auto best = static_cast<std::int32_t>(label + (bits >> 8) % 2) % (i % 11 == 0 ? 3 : 7);
    const bool none = (bits >> 16) % 13 == 0;
    const auto behind = static_cast<std::int32_t>(1 + (bits >> 24) % 5);
    answers.labels.push_back((bits >> 32) % 5 == 0 ? kIgnored : label);
    answers.best.push_back(none ? -1 : best);
    answers.ranks.push_back(none ? kClasses : best == label ? 0 : behind);
    answers.weights.push_back(static_cast<float>((bits >> 40) % 4));
    answers.losses.push_back(static_cast<double>((bits >> 44) % 1000) / 400);
  }
  return answers;
}

// By the definitions, from lists of what counts.
std::map<std::string, double> ByDefinition(const Answers& answers) {
  std::vector<std::pair<int, int>> counted;  // label, answer; no class: -1
  double right = 0, top = 0, loss = 0, weights = 0;
  for (std::size_t i = 0; i < answers.labels.size(); ++i) {
    const double weight = answers.weights.empty() ? 1 : answers.weights[i];
    if (answers.labels[i] == kIgnored || weight == 0) continue;
    counted.emplace_back(answers.labels[i], answers.best[i]);
    right += answers.ranks[i] == 0;
    top += answers.ranks[i] < 3;
    loss += weight * answers.losses[i];
    weights += weight;
  }
  const auto count = static_cast<double>(counted.size());
  double f1 = 0, classes = 0;
  for (int c = 0; c < kClasses; ++c) {
    const auto of = [&](bool label, bool answer) {
      return static_cast<double>(std::ranges::count_if(counted, [&](const auto& one) {
        return (one.first == c) == label && (one.second == c) == answer;
      }));
    };
    const double wrong = of(true, false) + of(false, true);
    if (of(true, true) + wrong == 0) continue;
    f1 += 2 * of(true, true) / (2 * of(true, true) + wrong);
    ++classes;
  }
  // The correlation of one-hot vectors: cov(X, Y) / sqrt(cov(X, X) cov(Y, Y)).
  double covariance = 0, of_labels = 0, of_answers = 0;
  for (int c = -1; c < kClasses; ++c) {
    double labels = 0, chosen = 0;
    for (const auto& [label, answer] : counted) {
      labels += (label == c) / count;
      chosen += (answer == c) / count;
    }
    for (const auto& [label, answer] : counted) {
      covariance += ((label == c) - labels) * ((answer == c) - chosen);
      of_labels += std::pow((label == c) - labels, 2);
      of_answers += std::pow((answer == c) - chosen, 2);
    }
  }
  return {{"accuracy", right / count},
          {"top_3", top / count},
          {"f1_micro", right / count},
          {"f1_macro", f1 / classes},
          {"perplexity", std::exp(loss / weights)},
          {"matthews", covariance / std::sqrt(of_labels * of_answers)}};
}

std::vector<NamedMetric> Make(std::span<const MetricSpec> specs, const SampleSpec& sample,
                              std::span<const float> near = {}) {
  std::vector<NamedMetric> metrics;
  for (const MetricSpec& spec : specs) metrics.push_back(MakeMetric(spec, sample, near));
  return metrics;
}

std::map<std::string, double> ComputeValues(std::span<const NamedMetric> metrics) {
  std::map<std::string, double> values;
  for (const NamedMetric& named : metrics) values[named.name] = named.metric->Value();
  return values;
}

std::map<std::string, double> ComputeValues(std::span<const MetricSpec> specs,
                                            const EvaluatedBatch& batch,
                                            std::int64_t classes = kClasses) {
  const auto metrics = Make(specs, LabelledSample({1}, classes));
  for (const NamedMetric& named : metrics) named.metric->Add(batch);
  return ComputeValues(metrics);
}

// Rank r of `ranks` has rows of its own number, in batches of another size.
std::map<std::string, double> ValuesOnRanks(const Answers& answers, int ranks) {
  std::mutex mutex;
  std::map<std::string, double> values;
  const Status status = RunThreadRanks(ranks, {}, [&](Communicator& comm) -> Status {
    const auto metrics = Make(kOfLabels, LabelledSample({1}, kClasses));
    const auto rows = answers.labels.size();
    const auto of = [&](std::size_t r) {
      return rows * r * r / static_cast<std::size_t>(ranks * ranks);
    };
    const auto rank = static_cast<std::size_t>(comm.rank());
    for (std::size_t at = of(rank); at < of(rank + 1);) {
      const std::size_t end = std::min(of(rank + 1), at + 3 * rank + 2);
      for (const NamedMetric& named : metrics) named.metric->Add(answers.Batch(at, end));
      at = end;
    }
    GACCD_RETURN_IF_ERROR(SumOverRanks(metrics, comm));
    const std::scoped_lock lock(mutex);
    if (values.empty()) values = ComputeValues(metrics);
    EXPECT_EQ(values, ComputeValues(metrics));  // on all ranks
    return Status::Ok();
  });
  EXPECT_TRUE(status.ok()) << status.message();
  return values;
}

TEST(MetricsTest, LabelMetricsEqualDefinitionsOnAnyRanks) {
  Answers answers = RandomAnswers(500);
  for (const bool weighted : {true, false}) {
    if (!weighted) answers.weights.clear();
    const auto expected = ByDefinition(answers);
    const auto alone = ComputeValues(kOfLabels, answers.Batch(0, 500));
    ASSERT_EQ(alone.size(), kOfLabels.size());
    for (const auto& [name, value] : alone) EXPECT_NEAR(value, expected.at(name), 1e-13) << name;
    for (const int ranks : {1, 2, 3, 5, 7}) {
      for (const auto& [name, value] : ValuesOnRanks(answers, ranks)) {
        if (name == "perplexity") {  // a sum of doubles
          EXPECT_NEAR(value / alone.at(name), 1, 1e-14) << ranks;
        } else {
          EXPECT_EQ(value, alone.at(name)) << name << " on " << ranks;
        }
      }
    }
  }
}

TEST(MetricsTest, AnswersOfWrongKindAreWrong) {
  // A NaN among the logits, and a logit beyond the classes; no class is the answer of both.
  Answers answers;
  answers.labels = {0, 1, 1};
  answers.best = {-1, 3, 1};
  answers.ranks = {3, 1, 0};
  answers.losses = {0, 0, 0};
  const auto values = ComputeValues(kOfLabels, answers.Batch(0, 3), 3);
  EXPECT_DOUBLE_EQ(values.at("accuracy"), 1.0 / 3);
  EXPECT_DOUBLE_EQ(values.at("f1_micro"), 1.0 / 3);
  EXPECT_DOUBLE_EQ(values.at("f1_macro"), (0 + 2.0 / 3) / 2);
  EXPECT_DOUBLE_EQ(values.at("top_3"), 2.0 / 3);
}

TEST(MetricsTest, CorrelationIsNanWithoutVariance) {
  Answers answers;
  answers.labels = {2, 2};
  answers.best = {2, 2};
  answers.ranks = {0, 0};
  answers.losses = {0, 0};
  EXPECT_EQ(ComputeValues(kOfLabels, answers.Batch(0, 2)).at("matthews"), 0);
}

TEST(MetricsTest, AreNanWithoutSamples) {
  for (const auto& [name, value] : ComputeValues(kOfLabels, EvaluatedBatch{})) {
    EXPECT_TRUE(std::isnan(value)) << name;
  }
  const float near = 3;
  for (const auto& [name, value] :
       ComputeValues(Make(kOfTargets, TargetSample({1}, 1), std::span(&near, 1)))) {
    EXPECT_TRUE(std::isnan(value)) << name;
  }
}

TEST(MetricsTest, TargetMetricsEqualDefinitions) {
  // Far from 0 compared with their spread; the second output never changes.
  constexpr std::size_t kRows = 300;
  std::vector<float> targets, prediction;
  for (std::size_t i = 0; i < kRows; ++i) {
    const auto noise = static_cast<float>(StreamValue(StreamKey(9, 5), i) % 1000) / 1000;
    targets.insert(targets.end(), {1e5F + noise, 3});
    prediction.insert(prediction.end(), {1e5F + noise / 2, i == 7 ? 3.5F : 3});
  }
  double mean = 0, squares = 0, sizes = 0, spread = 0, left = 0;
  for (std::size_t i = 0; i < kRows; ++i) mean += double{targets[2 * i]} / kRows;
  for (std::size_t i = 0; i < 2 * kRows; ++i) {
    const double error = double{targets[i]} - double{prediction[i]};
    squares += error * error / (2 * kRows);
    sizes += std::abs(error) / (2 * kRows);
    if (i % 2 == 0) left += error * error;
    if (i % 2 == 0) spread += std::pow(double{targets[i]} - mean, 2);
  }
  const auto metrics = Make(kOfTargets, TargetSample({1}, 2), std::span(targets).first(2));
  for (std::size_t at = 0; at < 2 * kRows; at += 20) {
    const EvaluatedBatch batch{.targets = std::span(targets).subspan(at, 20),
                               .prediction = std::span(prediction).subspan(at, 20)};
    for (const NamedMetric& named : metrics) named.metric->Add(batch);
  }
  auto values = ComputeValues(metrics);
  EXPECT_NEAR(values.at("mse") / squares, 1, 1e-12);
  EXPECT_NEAR(values.at("mae") / sizes, 1, 1e-12);
  EXPECT_NEAR(values.at("r2"), (1 - left / spread + 0) / 2, 1e-10);
}

TEST(MetricsTest, DefaultFitsLabels) {
  const auto names = [](const SampleSpec& sample) {
    std::vector<std::string> found;
    for (const NamedMetric& named : Make(DefaultMetrics(sample), sample))
      found.push_back(named.name);
    return found;
  };
  SampleSpec tokens{.tensors = {{"labels", DType::kI32, {4}}}, .classes = 3};
  EXPECT_THAT(names(LabelledSample({1}, 3)), testing::ElementsAre("accuracy"));
  EXPECT_THAT(names(tokens), testing::ElementsAre("accuracy", "perplexity"));
  EXPECT_THAT(names(TargetSample({1}, 3)), testing::IsEmpty());
}

// A loss that is the output has no prediction to compare labels with.
TEST(MetricsTest, LossOutputHasNone) {
  Job job;
  EXPECT_EQ(SelectMetrics(job, LabelledSample({1}, 3)).size(), 1U);
  job.model.loss = OutputLossSpec{};
  EXPECT_THAT(SelectMetrics(job, LabelledSample({1}, 3)), testing::IsEmpty());
}

// A metric without a direction, or without what it takes, does not compile.
static_assert(!std::is_default_constructible_v<MetricKind>);
static_assert(!std::is_constructible_v<MetricKind, std::string>);
static_assert(!std::is_constructible_v<MetricKind, std::string, MetricInput>);
static_assert(std::is_constructible_v<MetricKind, std::string, Better, MetricInput>);

// By the table, right answers are better than wrong ones, whatever the metric.
TEST(MetricKindTest, RanksRightAboveWrong) {
  const std::vector<std::int32_t> labels{0, 1, 2, 0};
  const std::vector<std::int32_t> first(4, 0), others{1, 2, 0, 0}, behind{1, 1, 2, 0};
  const std::vector<float> targets{1, 2, 3, 4}, near{1, 2, 3, 5}, far{4, 3, 2, 1};
  const auto of_labels = [&](bool right) {
    return EvaluatedBatch{.labels = labels,
                          .ranks = right ? first : behind,
                          .best = right ? labels : others,
                          .loss_sum = right ? 1.0 : 9.0,
                          .divisor = 4};
  };
  const auto of_targets = [&](bool right) {
    return EvaluatedBatch{.targets = targets, .prediction = right ? near : far};
  };
  for (MetricSpec spec : AllMetrics()) {
    if (auto* top = std::get_if<TopKSpec>(&spec)) top->k = 2;
    const MetricKind kind = DescribeMetric(spec);
    const bool takes_labels = kind.input == MetricInput::kLabels;
    const SampleSpec sample = takes_labels ? LabelledSample({1}, 3) : TargetSample({1}, 1);
    double values[2];
    for (const bool right : {false, true}) {
      const NamedMetric named = MakeMetric(spec, sample, std::span(targets).first(1));
      EXPECT_EQ(named.name, kind.name);
      named.metric->Add(takes_labels ? of_labels(right) : of_targets(right));
      values[right ? 1 : 0] = named.metric->Value();
    }
    EXPECT_TRUE(IsBetter(kind.better, values[1], values[0]))
        << kind.name << ": " << values[1] << " is right, " << values[0] << " is wrong";
  }
}

}  // namespace
}  // namespace gaccd
