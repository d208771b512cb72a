// Loss, gradients and 20 SGD steps against PyTorch in double precision (tests/golden/make_mlp.py).
// The micro-batches are ragged. The usual mistakes of accumulation go through the same comparison
// and must fail it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "tests/numerics/golden_file.h"
#include "tests/unit/engine/model_bench.h"

namespace gaccd {
namespace {

const std::vector<std::int64_t> kMicroBatches = {13, 9, 7, 3};  // 32 samples

// What a tensor may be off. PyTorch's own f32 results stand beside the golden values; ours sum in
// another order and may be a few times as far away. Small tensors (a bias of one element) hit the
// right value by chance, so nothing is asked to be better than four units in the last place of f32.
double Threshold(const GoldenTensor& golden) {
  return std::max(4 * golden.torch_error, 4 * 0x1p-24);
}

enum class Accumulation {
  kExact,             // every sample weighs 1/32
  kMeanOfMeans,       // every micro-batch weighs 1/4, whatever its size
  kLastMicroBatch,    // the others are overwritten
  kMeanOfRankMeans,   // ranks of 22 and 10 samples, averaged as if they were equal
  kWrongGlobalCount,  // 1/(4 * largest micro-batch): counts padding as samples
};

float WeightOf(Accumulation accumulation, std::size_t step) {
  switch (accumulation) {
    case Accumulation::kMeanOfMeans:
      return 1.0F / 4 / static_cast<float>(kMicroBatches[step]);
    case Accumulation::kMeanOfRankMeans:  // rank 0: micro-batches 0 and 1, rank 1: 2 and 3
      return 1.0F / 2 / (step < 2 ? 22.0F : 10.0F);
    case Accumulation::kWrongGlobalCount:
      return 1.0F / 52;
    case Accumulation::kExact:
    case Accumulation::kLastMicroBatch:
      return 1.0F / 32;
  }
  return 0;
}

class GoldenTest : public testing::TestWithParam<const char*> {
 protected:
  GoldenFile golden_ = ReadGolden(GetParam());
  LossKind loss_ =
      golden_.widths.back() == 1 ? LossKind::kMeanSquaredError : LossKind::kSoftmaxCrossEntropy;
  Model model_ = MakeMlp(golden_.widths, loss_);
  Samples samples_{SampleOf(golden_.widths, loss_), golden_.samples, 3};
  Trainer trainer_{model_,
                   {.micro_batches = {kMicroBatches.begin(), kMicroBatches.end()},
                    .micro_steps_per_update = std::ssize(kMicroBatches)}};

  void SetUp() override {
    ASSERT_EQ(golden_.losses.values.size(), 20u);
    ASSERT_EQ(golden_.gradients.size(), model_.layout().entries().size());
    if (golden_.parameters.empty()) return;  // the formula has made them already
    samples_.features = golden_.features;
    samples_.labels = golden_.labels;
    samples_.targets = golden_.targets;
    for (const auto& [name, values] : golden_.parameters) {
      const FlatEntry* entry = model_.layout().Find(name);
      ASSERT_NE(entry, nullptr) << name;
      ASSERT_EQ(std::ssize(values), entry->elements) << name;
      std::copy(values.begin(), values.end(), trainer_.parameters().begin() + entry->offset);
    }
    trainer_.ParametersChanged();
  }

  // The micro-steps of one update; returns the mean loss.
  double Accumulate(Accumulation accumulation) {
    double loss_sum = 0;
    std::int64_t at = 0;
    for (std::size_t step = 0; step < kMicroBatches.size(); ++step) {
      const bool first = step == 0 || accumulation == Accumulation::kLastMicroBatch;
      loss_sum += trainer_.MicroStep(samples_.View(at, kMicroBatches[step]),
                                     WeightOf(accumulation, step), first);
      at += kMicroBatches[step];
    }
    return loss_sum / static_cast<double>(at);
  }

  // By parameter: how far its gradient is off, in units of its threshold.
  std::map<std::string, double> GradientErrors() {
    std::map<std::string, double> errors;
    for (const auto& [name, golden] : golden_.gradients) {
      const FlatEntry* entry = model_.layout().Find(name);
      const auto found = trainer_.gradients().subspan(static_cast<std::size_t>(entry->offset),
                                                      static_cast<std::size_t>(entry->elements));
      errors[name] = ErrorOf(golden, found) / Threshold(golden);
    }
    return errors;
  }
};

TEST_P(GoldenTest, GradientsAreThoseOfPyTorch) {
  Accumulate(Accumulation::kExact);
  for (const auto& [name, error] : GradientErrors()) {
    const GoldenTensor& golden = golden_.gradients[name];
    std::printf("  %-12s off by %.2g, PyTorch's f32 by %.2g\n", name.c_str(),
                error * Threshold(golden), golden.torch_error);
    EXPECT_LE(error, 1) << name;
  }
}

TEST_P(GoldenTest, TwentySgdStepsFollowPyTorch) {
  double worst = 0;
  for (std::size_t update = 0; update < golden_.losses.values.size(); ++update) {
    const double expected = golden_.losses.values[update];
    const double loss = Accumulate(Accumulation::kExact);
    EXPECT_NEAR(loss, expected, Threshold(golden_.losses) * expected) << "update " << update;
    worst = std::max(worst, std::abs(loss / expected - 1));
    Descend(trainer_.parameters(), trainer_.gradients(), static_cast<float>(golden_.rate));
    trainer_.ParametersChanged();
  }
  std::printf("  losses off by %.2g, PyTorch's f32 by %.2g\n", worst, golden_.losses.torch_error);
}

TEST_P(GoldenTest, WrongWeightsFailTheSameComparison) {
  for (const auto wrong : {Accumulation::kMeanOfMeans, Accumulation::kLastMicroBatch,
                           Accumulation::kMeanOfRankMeans, Accumulation::kWrongGlobalCount}) {
    Accumulate(wrong);
    for (const auto& [name, error] : GradientErrors()) {
      EXPECT_GT(error, 1000) << name << ", variant " << static_cast<int>(wrong);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, GoldenTest,
                         testing::Values("mlp_small", "mlp_784_512_512_10", "linear_10_1"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace gaccd
