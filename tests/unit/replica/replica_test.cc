#include "daemon/replica/replica.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "collectives/base/memory.h"
#include "daemon/device/cpu/onednn.h"
#include "tests/support/graph_bench.h"
#include "tests/support/model_bench.h"
#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

std::vector<float> ToVector(std::span<const float> values) {
  return {values.begin(), values.end()};
}

// One micro-step of all samples against two, the first of which finds NaN.
void ExpectPartsGiveTheWhole(const std::vector<std::int64_t>& widths, std::int64_t first,
                             std::int64_t second) {
  const Model model = MakeMlp(widths);
  Samples samples(MakeSampleSpec(widths, LossKind::kSoftmaxCrossEntropy), first + second, 3);
  BenchTrainer trainer(model, {.micro_batches = {first, second, first + second}});
  const double whole = trainer.MicroStep(samples.All(), 0.25F, true);
  const std::vector<float> expected = ToVector(trainer.gradients());

  for (const FlatEntry& entry : model.layout().entries()) {
    std::fill_n(trainer.gradients().begin() + entry.offset, entry.elements,
                std::numeric_limits<float>::quiet_NaN());
  }
  const double parts = trainer.MicroStep(samples.View(0, first), 0.25F, true) +
                       trainer.MicroStep(samples.View(first, second), 0.25F, false);
  EXPECT_NEAR(parts, whole, 1e-6 * whole);
  EXPECT_LT(RelativeError(trainer.gradients(), expected), 1e-6);
}

TEST(ReplicaTest, FirstMicroStepOverwritesLaterOnesAdd) {
  ExpectPartsGiveTheWhole({12, 16, 5}, 7, 6);
}

// Weight gradients from 48 rows on are computed otherwise than those of fewer.
TEST(ReplicaTest, LargeAndSmallMicroBatchesEqualOneBatch) {
  ExpectPartsGiveTheWhole({520, 516, 5}, 65, 40);
  ExpectPartsGiveTheWhole({520, 516, 5}, 40, 65);
}

TEST(ReplicaTest, EmptyBatchClearsOnlyIfFirst) {
  const Model model = MakeMlp({12, 16, 5});
  Samples samples(MakeSampleSpec({12, 16, 5}, LossKind::kSoftmaxCrossEntropy), 7, 3);
  BenchTrainer trainer(model, {.micro_batches = {7}});
  trainer.MicroStep(samples.All(), 0.25F, true);
  const std::vector<float> expected = ToVector(trainer.gradients());

  EXPECT_EQ(trainer.MicroStep({}, 0.25F, false), 0);
  EXPECT_EQ(RelativeError(trainer.gradients(), expected), 0);
  EXPECT_EQ(trainer.MicroStep({}, 0.25F, true), 0);
  for (const float g : trainer.gradients()) ASSERT_EQ(g, 0);
  trainer.MicroStep(samples.All(), 0.25F, false);  // adds to nothing
  EXPECT_LT(RelativeError(trainer.gradients(), expected), 1e-6);
}

TEST(ReplicaTest, UnknownBatchSizeIsInternal) {
  const Model model = MakeMlp({12, 16, 5});
  Samples samples(MakeSampleSpec({12, 16, 5}, LossKind::kSoftmaxCrossEntropy), 9, 3);
  BenchTrainer trainer(model, {.micro_batches = {7}, .eval_batches = {4}});
  EXPECT_THAT(trainer.replica().MicroStep(samples.All(), 1, true),
              IsError(ErrorKind::kInternal, "9 samples"));
  EXPECT_THAT(trainer.replica().Evaluate(samples.View(0, 7)),
              IsError(ErrorKind::kInternal, "7 samples"));
}

// A plan makes a replica to know its memory, which may be larger than the machine's.
TEST(ReplicaTest, KeptMicroBatchesNeedNoMemoryUntilUsed) {
  constexpr std::int64_t kWidth = 1 << 16;
  const ModelSpec spec{
      .layer = {{"bn", BatchNormSpec{.num_features = kWidth}}, {"fc", LinearSpec{kWidth, 2, true}}},
      .loss = SoftmaxCrossEntropySpec{}};
  const Model model = ValueOrThrow(Model::Make(spec, LabelledSample({kWidth}, 2)));
  std::vector<float> gradients(static_cast<std::size_t>(model.layout().size()));
  const std::int64_t before = ValueOrThrow(ResidentBytes());
  const auto replica = ValueOrThrow(
      Replica::Create(model, gradients, {.micro_batches = {8}, .micro_steps_per_update = 64}));
  const std::int64_t kept = 64 * 8 * kWidth * std::int64_t{sizeof(float)};
  EXPECT_GT(replica->planned_bytes(), kept);
  EXPECT_LT(ValueOrThrow(ResidentBytes()) - before, kept / 2);
}

TEST(ReplicaTest, RefusesAGradientBufferOfAnotherSize) {
  const Model model = MakeMlp({12, 16, 5});
  std::vector<float> gradients(10);
  EXPECT_THAT(Replica::Create(model, gradients, {}), IsError(ErrorKind::kInternal, "found 10"));
}

TEST(ReplicaTest, EvaluationKeepsGradients) {
  const Model model = MakeMlp({12, 16, 5});
  Samples samples(MakeSampleSpec({12, 16, 5}, LossKind::kSoftmaxCrossEntropy), 7, 3);
  BenchTrainer trainer(model, {.micro_batches = {7}, .eval_batches = {7, 3}});
  const double loss = trainer.MicroStep(samples.All(), 0.25F, true);
  const std::vector<float> expected = ToVector(trainer.gradients());
  const auto evaluation = ValueOrThrow(trainer.replica().Evaluate(samples.All()));
  EXPECT_EQ(evaluation.samples, 7);
  EXPECT_NEAR(evaluation.loss_sum, loss, 1e-6 * loss);
  EXPECT_EQ(RelativeError(trainer.gradients(), expected), 0);

  // What is found of a sample does not depend on the others.
  const auto head = ValueOrThrow(trainer.replica().Evaluate(samples.View(0, 3)));
  ASSERT_EQ(evaluation.ranks.size(), 7U);
  EXPECT_THAT(head.ranks,
              testing::ElementsAreArray(evaluation.ranks.begin(), evaluation.ranks.begin() + 3));
  EXPECT_THAT(head.best,
              testing::ElementsAreArray(evaluation.best.begin(), evaluation.best.begin() + 3));
}

TEST(ReplicaTest, EvaluationRanksLabels) {
  // One layer that copies its input: the features are the logits.
  const Model model = MakeMlp({3, 3});
  BenchTrainer trainer(model, {.micro_batches = {}, .eval_batches = {5}});
  std::fill(trainer.parameters().begin(), trainer.parameters().end(), 0.0F);
  for (const std::size_t i : {0u, 4u, 8u}) trainer.parameters()[i] = 1;
  trainer.ParametersChanged();
  std::vector<float> features = {1, 2, 3, 3, 2, 1, 0, 5, 0, -1, -2, -3, 1, NAN, 2};
  std::vector<std::int32_t> labels = {2, 0, 2, 1, 2};
  void* const tensors[] = {features.data(), labels.data()};
  const auto evaluation =
      ValueOrThrow(trainer.replica().Evaluate({.samples = 5, .tensors = tensors}));
  EXPECT_THAT(evaluation.ranks, testing::ElementsAre(0, 0, 2, 1, 3));
  EXPECT_THAT(evaluation.best, testing::ElementsAre(2, 0, 1, 0, -1));
}

TEST(ReplicaTest, EvaluationOfTargetsReturnsPrediction) {
  const Model model = MakeMlp({2, 2}, LossKind::kMeanSquaredError);
  BenchTrainer trainer(model, {.micro_batches = {}, .eval_batches = {2}});
  std::fill(trainer.parameters().begin(), trainer.parameters().end(), 0.0F);
  trainer.parameters()[0] = 2;
  trainer.parameters()[3] = -1;
  trainer.ParametersChanged();
  std::vector<float> features = {1, 2, 3, 4};
  std::vector<float> targets = {1, 1, 1, 1};
  void* const tensors[] = {features.data(), targets.data()};
  const auto evaluation =
      ValueOrThrow(trainer.replica().Evaluate({.samples = 2, .tensors = tensors}));
  EXPECT_THAT(evaluation.prediction, testing::ElementsAre(2, -2, 6, -4));
  EXPECT_TRUE(evaluation.ranks.empty());
}

TEST(ReplicaTest, TheOutputCanBeTheLoss) {
  const SampleSpec sample = LabelledSample({3}, 2);  // labels may be unread
  ModelSpec spec = Mlp({3, 1}, LossKind::kMeanSquaredError);
  spec.loss = OutputLossSpec{};
  const Model model = ValueOrThrow(Model::Make(spec, sample));
  EXPECT_EQ(model.divisor_unit(), "samples");
  BenchTrainer trainer(model, {.micro_batches = {2}, .eval_batches = {2}});
  constexpr float kWeights[] = {1, -1, 1};
  constexpr float kBias = 16'777'200;
  constexpr double kLoss = 2.0 * 16'777'200 + 2 + 9;  // f32 has no odd numbers of this size
  std::copy_n(kWeights, 3, trainer.parameters().begin());
  const auto bias = static_cast<std::size_t>(model.layout().Find("fc1.bias")->offset);
  trainer.parameters()[bias] = kBias;
  trainer.ParametersChanged();
  std::vector<float> features = {1, 2, 3, 5, 7, 11};
  std::vector<std::int32_t> labels = {0, 1};
  void* const tensors[] = {features.data(), labels.data()};
  const BatchView batch{.samples = 2, .tensors = tensors};
  EXPECT_EQ(trainer.MicroStep(batch, 0.25F, true), kLoss);
  EXPECT_THAT(ToVector(trainer.gradients().first(3)),
              testing::ElementsAre(0.25F * 6, 0.25F * 9, 0.25F * 14));
  EXPECT_EQ(trainer.gradients()[bias], 0.25F * 2);
  const auto evaluation = ValueOrThrow(trainer.replica().Evaluate(batch));
  EXPECT_EQ(evaluation.loss_sum, kLoss);
  EXPECT_EQ(evaluation.divisor, 2);
  EXPECT_TRUE(evaluation.ranks.empty() && evaluation.prediction.empty());
}

TEST(ReplicaTest, TheOutputCanBeASumOfLossesAndTheirCount) {
  ModelSpec spec = Mlp({2, 2}, LossKind::kMeanSquaredError);
  spec.loss = OutputLossSpec{};
  const Model model = ValueOrThrow(Model::Make(spec, LabelledSample({2}, 2)));
  EXPECT_EQ(model.divisor_unit(), "weights");
  BenchTrainer trainer(model, {.micro_batches = {3}, .eval_batches = {3}});
  const auto weights = static_cast<std::size_t>(model.layout().Find("fc1.weight")->offset);
  std::fill(trainer.parameters().begin(), trainer.parameters().end(), 0.0F);
  trainer.parameters()[weights] = 2;      // loss: 2 x0
  trainer.parameters()[weights + 3] = 1;  // count: x1
  trainer.ParametersChanged();
  std::vector<float> features = {1, 4, 3, 0, -5, 7};
  std::vector<std::int32_t> labels = {0, 1, 0};
  void* const tensors[] = {features.data(), labels.data()};
  const BatchView batch{.samples = 3, .tensors = tensors};
  const LossSums sums = ValueOrThrow(trainer.replica().MicroStep(batch, 0.5F, true));
  EXPECT_EQ(sums.loss_sum, -2);
  EXPECT_EQ(sums.divisor, 11);
  // Not of the count.
  EXPECT_THAT(ToVector(trainer.gradients().subspan(weights, 4)),
              testing::ElementsAre(-0.5F, 5.5F, 0, 0));
  EXPECT_EQ(ValueOrThrow(trainer.replica().Evaluate(batch)).divisor, 11);
  EXPECT_THAT(model.RecordTraining({2}, Precision::kBF16).status(),
              IsError(ErrorKind::kConfig, "counts are not exact in bf16; expected precision f32"));
}

// Replicas made for other sets of sizes plan other memory and other products; what a micro-batch
// gives is the same to the last bit.
TEST(ReplicaTest, MicroBatchResultIsIndependentOfReplicaSizes) {
  const std::vector<std::int64_t> widths = {30, 40, 20, 7};
  const Model model = MakeMlp(widths);
  Samples samples(MakeSampleSpec(widths, LossKind::kSoftmaxCrossEntropy), 64, 3);
  std::vector<float> expected;
  double expected_loss = 0;
  const std::vector<std::set<std::int64_t>> sets = {
      {5}, {4, 5}, {5, 6}, {1, 5, 64}, {5, 33, 34, 35}};
  for (const auto& sizes : sets) {
    BenchTrainer trainer(model, {.micro_batches = sizes, .eval_batches = {10}});
    for (const std::int64_t size : sizes) trainer.MicroStep(samples.View(0, size), 1, true);
    const double loss = trainer.MicroStep(samples.View(20, 5), 0.5F, true);
    if (expected.empty()) {
      expected = ToVector(trainer.gradients());
      expected_loss = loss;
    }
    EXPECT_EQ(loss, expected_loss);
    EXPECT_EQ(RelativeError(trainer.gradients(), expected), 0) << "sizes from " << *sizes.begin();
  }
}

TEST(ReplicaTest, PaddingStaysZeroInTraining) {
  const std::vector<std::int64_t> widths = {7, 11, 3};  // no size is a multiple of 16
  const Model model = MakeMlp(widths);
  Samples samples(MakeSampleSpec(widths, LossKind::kSoftmaxCrossEntropy), 12, 3);
  BenchTrainer trainer(model, {.micro_batches = {5, 7}, .micro_steps_per_update = 8});
  for (int update = 0; update < 10; ++update) {
    trainer.MicroStep(samples.View(0, 5), 1.0F / 12, true);
    trainer.MicroStep(samples.View(5, 7), 1.0F / 12, false);
    Descend(trainer.parameters(), trainer.gradients(), 0.1F);
    trainer.ParametersChanged();
  }
  std::vector<bool> is_padding(trainer.parameters().size(), true);
  for (const FlatEntry& entry : model.layout().entries()) {
    std::fill_n(is_padding.begin() + entry.offset, entry.elements, false);
  }
  ASSERT_GT(std::count(is_padding.begin(), is_padding.end(), true), 10);
  for (std::size_t i = 0; i < is_padding.size(); ++i) {
    if (!is_padding[i]) continue;
    EXPECT_EQ(trainer.parameters()[i], 0) << i;
    EXPECT_EQ(trainer.gradients()[i], 0) << i;
  }
}

class PackedWeightsTest : public testing::Test {
 protected:
  static constexpr std::int64_t kBatch = 32;
  // Layers of one shape, which must not share a packed copy.
  const std::vector<std::int64_t> kWidths = {100, 64, 64, 64, 10};
  ReplicaOptions Options(std::int64_t micro_steps) {
    return {.micro_batches = {kBatch, 31},
            .eval_batches = {kBatch},
            .micro_steps_per_update = micro_steps};
  }
  // Without ParametersChanged(): packed copies are those from before.
  void TripleWeights(BenchTrainer& trainer) {
    for (const FlatEntry& entry : model_.layout().entries()) {
      if (!entry.name.ends_with("weight")) continue;
      for (std::int64_t i = 0; i < entry.elements; ++i) {
        trainer.parameters()[static_cast<std::size_t>(entry.offset + i)] *= 3;
      }
    }
  }

  Model model_ = MakeMlp(kWidths);
  Samples samples_{MakeSampleSpec(kWidths, LossKind::kSoftmaxCrossEntropy), 64, 3};
  BenchTrainer plain_{model_, Options(1)};
  BenchTrainer packed_{model_, Options(8)};
};

TEST_F(PackedWeightsTest, EqualPlainWeights) {
  BenchTrainer least_packed(model_, Options(2));  // the least for which it pays
  for (int update = 0; update < 4; ++update) {
    const double expected = plain_.MicroStep(samples_.View(0, kBatch), 0.02F, true) +
                            plain_.MicroStep(samples_.View(kBatch, 31), 0.02F, false);
    for (BenchTrainer* trainer : {&packed_, &least_packed}) {
      const double found = trainer->MicroStep(samples_.View(0, kBatch), 0.02F, true) +
                           trainer->MicroStep(samples_.View(kBatch, 31), 0.02F, false);
      EXPECT_NEAR(found, expected, 1e-6 * expected);
      EXPECT_LT(RelativeError(trainer->gradients(), plain_.gradients()), 1e-6);
    }
    // All go the same way, so that each update compares products and nothing else.
    Descend(plain_.parameters(), plain_.gradients(), 0.5F);
    for (BenchTrainer* trainer : {&packed_, &least_packed}) {
      std::copy(plain_.parameters().begin(), plain_.parameters().end(),
                trainer->parameters().begin());
      trainer->ParametersChanged();
    }
  }
}

// The contract of ParametersChanged(): without it the packed copies are those of the last update.
TEST_F(PackedWeightsTest, AreRepackedAfterParametersChange) {
  if (packed_.replica().planned_bytes() == plain_.replica().planned_bytes()) {
    GTEST_SKIP() << "oneDNN wants no packed weights on this machine";
  }
  const BatchView batch = samples_.View(0, kBatch);
  const double before = packed_.MicroStep(batch, 0.02F, true);
  for (BenchTrainer* trainer : {&plain_, &packed_}) TripleWeights(*trainer);
  const double expected = plain_.MicroStep(batch, 0.02F, true);
  ASSERT_GT(std::abs(expected - before), 0.1);
  EXPECT_EQ(packed_.MicroStep(batch, 0.02F, true), before);
  packed_.ParametersChanged();
  EXPECT_NEAR(packed_.MicroStep(batch, 0.02F, true), expected, 1e-6 * expected);
  EXPECT_LT(RelativeError(packed_.gradients(), plain_.gradients()), 1e-6);
}

// Wherever the pieces end.
TEST_F(PackedWeightsTest, MayBePackedDuringUpdate) {
  const std::vector<std::int64_t> widths = {96, 192, 128, 80, 64, 10};
  const Model model = MakeMlp(widths);
  Samples samples(MakeSampleSpec(widths, LossKind::kSoftmaxCrossEntropy), kBatch, 3);
  const BatchView batch = samples.All();
  for (const Precision precision : {Precision::kF32, Precision::kBF16}) {
    if (precision == Precision::kBF16 && DetectCpuBf16() == CpuBf16::kNone) continue;
    BenchTrainer at_once(model, Options(8), 1, precision);
    BenchTrainer by_pieces(model, Options(8), 1, precision);
    for (const std::int64_t piece : {1000, 64 * 100, 100000}) {
      const std::span<float> parameters = by_pieces.parameters();
      const std::int64_t all = std::ssize(parameters);
      for (std::int64_t done = 0; done < all; done += piece) {
        const std::int64_t end = std::min(done + piece, all);
        for (std::int64_t i = done; i < end; ++i) parameters[static_cast<std::size_t>(i)] *= 1.1F;
        by_pieces.replica().ParametersChangedUpTo(end);
      }
      for (float& parameter : at_once.parameters()) parameter *= 1.1F;
      for (BenchTrainer* trainer : {&at_once, &by_pieces}) trainer->ParametersChanged();
      EXPECT_EQ(by_pieces.MicroStep(batch, 0.02F, true), at_once.MicroStep(batch, 0.02F, true));
      EXPECT_EQ(RelativeError(by_pieces.gradients(), at_once.gradients()), 0);
    }
  }
}

TEST_F(PackedWeightsTest, CountInPlannedBytes) {
  // Parameters, gradients, and activations of at least the widest layer.
  const std::int64_t flat = 4 * model_.layout().size();
  EXPECT_GT(plain_.replica().planned_bytes(), 2 * flat + kBatch * 64 * 4);
  // Only packed copies are stale, so the product itself tells whether there are any.
  const BatchView batch = samples_.View(0, kBatch);
  const double before = packed_.MicroStep(batch, 0.02F, true);
  TripleWeights(packed_);
  const bool is_packed = packed_.MicroStep(batch, 0.02F, true) == before;
  const std::int64_t more = packed_.replica().planned_bytes() - plain_.replica().planned_bytes();
  if (!is_packed) {
    EXPECT_EQ(more, 0);
    return;
  }
  // Each packed weight for the forward and for the backward, padded to whole blocks.
  EXPECT_GT(more, flat / 4);
  EXPECT_LT(more, 4 * flat);
}

}  // namespace
}  // namespace gaccd
