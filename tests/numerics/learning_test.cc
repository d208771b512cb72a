// A small real problem: on a part of Fashion-MNIST loss and error must go down, with a target batch
// that does not divide.
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>

#include "daemon/data/dataset.h"
#include "daemon/data/index_source.h"
#include "daemon/optim/optimizer.h"
#include "tests/unit/engine/model_bench.h"

namespace gaccd {
namespace {

const std::string kFolder = "/usr/share/datasets/fashion-mnist/";  // dataset-fashion-mnist
constexpr std::int64_t kSubset = 20'000;
constexpr double kRate = 0.02;

std::unique_ptr<Dataset> Open(const std::string& part) {
  const NormalizeSpec normalize{.scale = 1.0 / 255, .mean = 0.286, .std = 0.353};
  auto dataset = OpenDataset(IdxSource{.images = kFolder + part + "-images-idx3-ubyte.gz",
                                       .labels = kFolder + part + "-labels-idx1-ubyte.gz",
                                       .classes = 10},
                             normalize);
  EXPECT_TRUE(dataset.ok()) << dataset.status().message();
  return dataset.ok() ? std::move(dataset).value() : nullptr;
}

struct Score {
  double loss = 0;
  double accuracy = 0;
};

Score ScoreOf(Replica& replica, const Dataset& dataset, Samples& batch) {
  Score score;
  EvalIndices indices({.first = 0, .count = dataset.size()}, batch.size);
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(batch.size));
  for (std::int64_t n = 0; (n = indices.Next(numbers)) > 0;) {
    const BatchView view = batch.View(0, n);
    dataset.Gather(std::span(numbers).first(static_cast<std::size_t>(n)), view);
    const auto evaluation = replica.Evaluate(view);
    EXPECT_TRUE(evaluation.ok()) << evaluation.status().message();
    if (!evaluation.ok()) return {};
    score.loss += evaluation->loss_sum / static_cast<double>(dataset.size());
    score.accuracy += *evaluation->correct / static_cast<double>(dataset.size());
  }
  return score;
}

TEST(LearningTest, FashionMnistLossGoesDownAndAccuracyUp) {
  if (!std::filesystem::exists(kFolder)) {
    GTEST_SKIP() << "SKIPPED: " << kFolder
                 << " is not there (apt-get install dataset-fashion-mnist)";
  }
  const auto train = Open("train");
  const auto test = Open("t10k");
  ASSERT_TRUE(train != nullptr && test != nullptr);
  ModelSpec spec = Mlp({784, 64, 10}, LossKind::kSoftmaxCrossEntropy);
  spec.layers.insert(spec.layers.begin(), {"flatten", FlattenSpec{}});
  const auto model = Model::Make(spec, train->spec());
  ASSERT_TRUE(model.ok()) << model.status().message();

  const auto plan =
      *Plan::Make({.nodes = 1, .gpus_per_node = 1, .micro_batch = 32, .target_batch = 101});
  const auto schedule = *UpdateSchedule::Make(
      {.dataset_size = kSubset, .batch = 101, .epochs = 2, .last_cycle = LastCycle::kDrop});
  auto indices = *TrainIndices::Make(SampleOrder(1, kSubset, true), schedule, plan, 0);
  Trainer trainer(*model, {.micro_batches = {25, 26},
                           .eval_batches = {1000},
                           .micro_steps_per_update = plan.accum_steps()});
  auto optimizer =
      *MakeOptimizer({.lr = kRate, .kind = SgdSpec{.momentum = 0.9}}, model->layout().size());
  Samples batch(train->spec(), 1000, 0);

  const Score before = ScoreOf(trainer.replica(), *test, batch);
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(indices.max_samples()));
  double epoch_loss[2] = {};
  for (std::int64_t u = 0; u < schedule.updates(); ++u) {
    for (std::int64_t j = 0; j < plan.accum_steps(); ++j) {
      const std::int64_t n = indices.Next(numbers);
      const BatchView view = batch.View(0, n);
      train->Gather(std::span(numbers).first(static_cast<std::size_t>(n)), view);
      epoch_loss[schedule.At(u).epoch] += trainer.MicroStep(view, 1.0F / 101, j == 0);
    }
    optimizer->Step(trainer.parameters(), trainer.gradients(), kRate, 1);
    trainer.ParametersChanged();
  }
  const Score after = ScoreOf(trainer.replica(), *test, batch);
  std::printf("  test loss %.3f -> %.3f, accuracy %.3f -> %.3f\n", before.loss, after.loss,
              before.accuracy, after.accuracy);
  // Ten classes: chance is 0.1 and ln 10. The test set is held out.
  EXPECT_NEAR(before.loss, 2.303, 0.3);
  EXPECT_LT(before.accuracy, 0.3);
  EXPECT_LT(after.loss, 0.55);
  EXPECT_GT(after.accuracy, 0.80);
  EXPECT_LT(epoch_loss[1], 0.9 * epoch_loss[0]);
}

}  // namespace
}  // namespace gaccd
