// The mean over the tokens that have a label is that of one big batch: against a model whose loss
// and gradient are written out here in double, over ragged counts of labels, ranks and micro-steps.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <mutex>
#include <numeric>

#include "collectives/base/strings.h"
#include "collectives/comm/threads.h"
#include "daemon/optim/update_control.h"
#include "tests/support/engine_runs.h"
#include "tests/support/status_matchers.h"

namespace gaccd::tests {
namespace {

constexpr double kSameTokens = 1e-6;
constexpr std::int64_t kLength = 6;
constexpr std::int64_t kWidth = 5;
constexpr std::int64_t kClasses = 7;
constexpr std::int32_t kIgnored = -100;

// What a loss weighs the token of place `at` with in a batch of all samples.
using TokenWeights = std::function<double(std::size_t at)>;

// One batch of the whole update.
struct Tokens {
  std::vector<std::int32_t> tokens, labels;
  std::vector<double> weights;  // 0 where there is no label

  [[nodiscard]] double Divisor(std::size_t first, std::size_t end) const {
    return std::accumulate(weights.begin() + static_cast<std::ptrdiff_t>(first),
                           weights.begin() + static_cast<std::ptrdiff_t>(end), 0.0);
  }
  [[nodiscard]] double Divisor() const { return Divisor(0, weights.size()); }
};

Tokens ReadTokens(const BatchView& batch, bool weighted) {
  const auto elements = static_cast<std::size_t>(batch.samples * kLength);
  Tokens tokens;
  tokens.tokens.assign(batch.tensor<std::int32_t>(0), batch.tensor<std::int32_t>(0) + elements);
  tokens.labels.assign(batch.tensor<std::int32_t>(1), batch.tensor<std::int32_t>(1) + elements);
  for (std::size_t i = 0; i < elements; ++i) {
    const double weight = weighted ? double{batch.tensor<float>(2)[i]} : 1.0;
    tokens.weights.push_back(tokens.labels[i] == kIgnored ? 0 : weight);
  }
  return tokens;
}

// Embedding [V, W], linear layer [C, W] and its bias, as the flat layout has them.
struct Reference {
  const FlatLayout& layout;
  std::vector<double> parameters;

  [[nodiscard]] std::size_t At(std::string_view name) const {
    return static_cast<std::size_t>(layout.Find(name)->offset);
  }

  // d sum_i weight(i) loss_i / d parameters; returns the sum.
  double Gradient(const Tokens& batch, const TokenWeights& weight,
                  std::vector<double>* gradient) const {
    gradient->assign(parameters.size(), 0);
    const std::size_t table = At("wte.weight");
    const std::size_t matrix = At("fc1.weight");
    const std::size_t bias = At("fc1.bias");
    double loss = 0;
    for (std::size_t i = 0; i < batch.tokens.size(); ++i) {
      if (batch.labels[i] == kIgnored) continue;
      const std::size_t row = table + static_cast<std::size_t>(batch.tokens[i]) * kWidth;
      double z[kClasses];
      double sum = 0;
      for (std::size_t c = 0; c < kClasses; ++c) {
        z[c] = parameters[bias + c];
        for (std::size_t k = 0; k < kWidth; ++k) {
          z[c] += parameters[matrix + c * kWidth + k] * parameters[row + k];
        }
        sum += std::exp(z[c]);
      }
      const auto label = static_cast<std::size_t>(batch.labels[i]);
      loss += weight(i) * (std::log(sum) - z[label]);
      for (std::size_t c = 0; c < kClasses; ++c) {
        const double dz = weight(i) * (std::exp(z[c]) / sum - (c == label ? 1 : 0));
        (*gradient)[bias + c] += dz;
        for (std::size_t k = 0; k < kWidth; ++k) {
          (*gradient)[matrix + c * kWidth + k] += dz * parameters[row + k];
          (*gradient)[row + k] += dz * parameters[matrix + c * kWidth + k];
        }
      }
    }
    return loss;
  }

  void Step(const std::vector<double>& gradient, double factor) {
    for (std::size_t i = 0; i < parameters.size(); ++i) parameters[i] -= factor * gradient[i];
  }
};

std::vector<float> Floats(const std::vector<double>& values) {
  return {values.begin(), values.end()};
}

double Norm(const std::vector<double>& values) {
  return std::sqrt(std::inner_product(values.begin(), values.end(), values.begin(), 0.0));
}

struct Expected {
  std::vector<double> losses, norms, divisors;
  std::vector<std::vector<float>> gradients;
  std::vector<float> parameters;
  // The smallest distance of any wrong variant from the right gradient, over the updates.
  double per_sample = HUGE_VAL, per_rank = HUGE_VAL, mean_of_means = HUGE_VAL;
};

EngineCase MakeCase(int ranks, std::int64_t micro, std::int64_t target, bool weighted) {
  EngineCase test{.ranks = ranks,
                  .micro = micro,
                  .target = target,
                  .updates = 4,
                  .widths = {kWidth, kClasses},
                  .optimizer = {.lr = 0.5, .kind = SgdSpec{}},
                  .clip_norm = 0.2,
                  .tokens = kLength,
                  .token_weights = weighted};
  test.tail = (target + 2) / 3;
  return test;
}

// How the gradient would be off if every rank, or every micro-batch, divided by its own count.
void MakeMistakes(const Reference& model, const Tokens& batch, const Plan& plan,
                  const std::vector<float>& right, Expected* expected) {
  std::vector<double> of_rank(batch.tokens.size(), 0);
  std::vector<double> of_step(batch.tokens.size(), 0);
  std::size_t at = 0;
  for (std::int64_t rank = 0; rank < plan.world(); ++rank) {
    const auto rank_end = at + static_cast<std::size_t>(plan.Load(rank) * kLength);
    const double count = batch.Divisor(at, rank_end);
    std::fill(of_rank.begin() + static_cast<std::ptrdiff_t>(at),
              of_rank.begin() + static_cast<std::ptrdiff_t>(rank_end),
              count > 0 ? 1 / (count * static_cast<double>(plan.world())) : 0);
    for (std::int64_t step = 0; step < plan.accum_steps(); ++step) {
      const auto end = at + static_cast<std::size_t>(plan.MicroBatch(rank, step) * kLength);
      const double of =
          batch.Divisor(at, end) * static_cast<double>(plan.world() * plan.accum_steps());
      for (; at < end; ++at) of_step[at] = of > 0 ? 1 / of : 0;
    }
  }
  const double samples = static_cast<double>(batch.tokens.size());
  const auto distance = [&](const TokenWeights& weight, double* least) {
    std::vector<double> wrong;
    model.Gradient(
        batch, [&](std::size_t i) { return batch.weights[i] * weight(i); }, &wrong);
    *least = std::min(*least, Distance(Floats(wrong), right));
  };
  distance([&](std::size_t) { return 1 / samples; }, &expected->per_sample);
  distance([&](std::size_t i) { return of_rank[i]; }, &expected->per_rank);
  distance([&](std::size_t i) { return of_step[i]; }, &expected->mean_of_means);
}

// One rank, one batch an update; the engine only gives the first parameters and the batches.
Expected Expect(const EngineCase& ragged) {
  EngineCase test = ragged;
  test.ranks = 1;
  test.micro = test.target;
  const Model model = MakeCaseModel(test);
  Reference reference{model.layout(), {}};
  Expected expected;
  const auto update = [&](Engine& engine, Prefetcher& batches, const Plan& plan,
                          UpdateSettings settings) -> Status {
    if (reference.parameters.empty()) {
      std::vector<float> initial(static_cast<std::size_t>(model.layout().size()));
      GACCD_RETURN_IF_ERROR(engine.GetParameters(initial));
      reference.parameters.assign(initial.begin(), initial.end());
    }
    const BatchView& batch = *batches.Next();
    const Tokens tokens = ReadTokens(batch, test.token_weights);
    const double divisor = tokens.Divisor();
    std::vector<double> gradient;
    expected.losses.push_back(reference.Gradient(
        tokens, [&](std::size_t i) { return tokens.weights[i] / divisor; }, &gradient));
    expected.divisors.push_back(divisor);
    expected.norms.push_back(Norm(gradient));
    expected.gradients.push_back(Floats(gradient));
    GACCD_ASSIGN_OR_RETURN(const Plan other, MakeCasePlan(ragged));
    GACCD_ASSIGN_OR_RETURN(const Plan cut, other.ForSamples(batch.samples));
    MakeMistakes(reference, tokens, cut, expected.gradients.back(), &expected);
    reference.Step(gradient, settings.lr * ClipFactor(expected.norms.back(), settings.clip_norm));
    return UpdateByHand(engine, plan, settings, [&](std::int64_t /*step*/) {
      return engine.MicroStep(batch, {.first = true, .last = true});
    });
  };
  EXPECT_OK(RunEngine(*MakeSingle(), test, {}, {.update = update}));
  expected.parameters = Floats(reference.parameters);
  return expected;
}

void ExpectSame(const EngineRun& found, const Expected& expected) {
  ASSERT_EQ(found.results.size(), expected.losses.size());
  for (std::size_t u = 0; u < expected.losses.size(); ++u) {
    SCOPED_TRACE(StrCat("update ", u + 1));
    EXPECT_NEAR(found.results[u].divisor / expected.divisors[u], 1, kSameTokens);
    EXPECT_NEAR(found.results[u].loss / expected.losses[u], 1, kSameTokens);
    EXPECT_NEAR(found.results[u].grad_norm / expected.norms[u], 1, kSameTokens);
    EXPECT_LT(Distance(found.gradients[u], expected.gradients[u]), kSameTokens);
  }
  EXPECT_LT(Distance(found.parameters, expected.parameters), kSameTokens);
}

class TokenLossTest : public ::testing::TestWithParam<std::tuple<int, bool>> {};

TEST_P(TokenLossTest, IsMeanOverUpdate) {
  const auto& [ranks, weighted] = GetParam();
  for (std::int64_t micro = 1; micro <= 9; ++micro) {
    SCOPED_TRACE(StrCat(ranks, " ranks, micro-batch ", micro));
    const EngineCase test = MakeCase(ranks, micro, 31, weighted);
    const Expected expected = Expect(test);
    if (ranks > 1) {
      EXPECT_GT(expected.per_rank, 1000 * kSameTokens);
    }
    EXPECT_GT(expected.mean_of_means, 1000 * kSameTokens);
    EXPECT_GT(expected.per_sample, 1000 * kSameTokens);
    std::mutex mutex;
    ExpectOk(RunThreadRanks(ranks, {}, [&](Communicator& comm) -> Status {
      GACCD_ASSIGN_OR_RETURN(const EngineRun found, RunEngine(comm, test, {}, {.gradients = true}));
      const std::lock_guard lock(mutex);
      ExpectSame(found, expected);
      return Status::Ok();
    }));
  }
}

INSTANTIATE_TEST_SUITE_P(All, TokenLossTest,
                         ::testing::Combine(::testing::Values(1, 2, 3, 5, 7), ::testing::Bool()));

// The gradients of sums and the count so far are all that a checkpoint inside an update needs.
TEST(TokenWindowTest, KeepsCount) {
  const EngineCase test = MakeCase(3, 4, 31, /*weighted=*/true);
  const Expected expected = Expect(test);
  const auto elements = static_cast<std::size_t>(MakeCaseModel(test).layout().size());
  const auto update = [elements](Engine& engine, Prefetcher& batches, const Plan& plan,
                                 UpdateSettings settings) -> Status {
    return UpdateByHand(engine, plan, settings, [&](std::int64_t step) -> Status {
      GACCD_RETURN_IF_ERROR(engine.MicroStep(
          *batches.Next(), {.first = step == 0, .last = step + 1 == plan.accum_steps()}));
      GACCD_ASSIGN_OR_RETURN(const PartialUpdate share, engine.GetPartialUpdate());
      std::vector<float> gradients(elements);
      GACCD_RETURN_IF_ERROR(engine.Read(EngineBuffer::kGradients, 0, gradients));
      GACCD_RETURN_IF_ERROR(engine.SetPartialUpdate(std::vector<float>(gradients.size()), {}));
      return engine.SetPartialUpdate(gradients, share);
    });
  };
  ExpectOk(RunThreadRanks(3, {}, [&](Communicator& comm) -> Status {
    GACCD_ASSIGN_OR_RETURN(const EngineRun found,
                           RunEngine(comm, test, {}, {.gradients = true, .update = update}));
    ExpectSame(found, expected);
    return Status::Ok();
  }));
}

// Sample 0 has no label: in an update of its own, nothing can be divided by.
TEST(TokenDivisorTest, ZeroIsAnErrorOrSkipsUpdate) {
  EngineCase test = MakeCase(2, 1, 1, /*weighted=*/false);
  test.tail = 0;
  test.updates = 3;  // of the samples 0, 1, 2
  for (const bool outlive : {false, true}) {
    test.tolerate_nonfinite = outlive;
    ExpectOk(RunThreadRanks(2, {}, [&](Communicator& comm) -> Status {
      const auto found = RunEngine(comm, test, {});
      EXPECT_EQ(found.ok(), outlive);
      if (!found.ok()) {
        EXPECT_THAT(found, IsError(ErrorKind::kData, "nothing to train on"));
        return Status::Ok();
      }
      const auto skipped =
          std::ranges::count_if(found->results, [](const auto& result) { return !result.finite; });
      EXPECT_EQ(skipped, 1);
      EXPECT_TRUE(std::isfinite(Distance(found->parameters, found->parameters)));
      return Status::Ok();
    }));
  }
}

}  // namespace
}  // namespace gaccd::tests
