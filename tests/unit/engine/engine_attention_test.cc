// A GPT on the engine for GPUs, in bf16, with attention by the stand-in's library: recorded once,
// launched at every update, compared with the own kernel and the CPU.
#include <gtest/gtest.h>

#include "daemon/tensor/sample.h"
#include "tests/standin/cublaslt_standin.h"
#include "tests/standin/sdpa_standin.h"
#include "tests/standin/standin.h"
#include "tests/support/engine_runs.h"

namespace gaccd::tests {
namespace {

constexpr std::int64_t kVocabulary = 13;
constexpr std::int64_t kSamples = 3;
constexpr std::int64_t kLayers = 2;

Model Gpt() {
  const GptSpec gpt{
      .vocabulary = kVocabulary, .context = 10, .layers = kLayers, .heads = 2, .width = 16};
  return Model::MakeWithoutData({.loss = SoftmaxCrossEntropySpec{}, .architecture = gpt}).value();
}

// Tokens, and labels that follow from them.
BatchMemory MakeBatch(const Model& model) {
  BatchMemory batch(model.sample(), kSamples);
  for (std::size_t t = 0; t < batch.view().tensors.size(); ++t) {
    auto* const values = batch.view().tensor<std::int32_t>(t);
    const auto count = static_cast<std::int32_t>(batch.bytes(t).size() / sizeof(std::int32_t));
    for (std::int32_t i = 0; i < count; ++i) {
      values[i] =
          static_cast<std::int32_t>((i * i + 3 * static_cast<std::int32_t>(t)) % kVocabulary);
    }
  }
  return batch;
}

// The losses of five updates.
std::vector<double> TrainLosses(const EngineChoice& choice, Precision precision) {
  const Model model = Gpt();
  const auto comm = MakeSingle();
  EngineOptions options;
  options.replica = {.micro_batches = {kSamples}};
  options.optimizer = {.lr = 0.5, .kind = SgdSpec{}};
  options.numerics = {.precision = precision, .deterministic = true};
  options.choice = choice;
  const auto engine = MakeEngine(*comm, model, options).value();
  std::vector<float> parameters(static_cast<std::size_t>(model.layout().size()));
  model.Initialize(7, parameters);
  EXPECT_TRUE(engine->SetParameters(parameters).ok());
  const BatchMemory batch = MakeBatch(model);
  std::vector<double> losses;
  for (std::int64_t update = 0; update < 5; ++update) {
    EXPECT_TRUE(engine->Begin({.samples = kSamples, .update = update, .lr = 0.5}).ok());
    EXPECT_TRUE(engine->MicroStep(batch.view(), {.first = true, .last = true}).ok());
    EXPECT_TRUE(engine->Reduce().ok());
    EXPECT_TRUE(engine->MeasureGradient().ok());
    EXPECT_TRUE(engine->Audit().ok());
    EXPECT_TRUE(engine->Optimize().ok());
    EXPECT_TRUE(engine->End().ok());
    const auto result = engine->PopResult(/*wait=*/true).value();
    losses.push_back(result->loss);
  }
  return losses;
}

TEST(EngineAttention, UsesLibraryInBf16) {
  standin::Reset();
  standin::SetSdpa();
  const std::vector<double> expected = TrainLosses({}, Precision::kF32);
  EngineChoice gpu{.device = Device::kCuda, .cublaslt = &standin::StandInCublasLt()};
  const std::vector<double> own = TrainLosses(gpu, Precision::kBF16);
  EXPECT_EQ(standin::CountSdpa().ran, 0);
  gpu.dnn = &standin::OpenDnn;
  const std::vector<double> found = TrainLosses(gpu, Precision::kBF16);
  EXPECT_EQ(standin::CountSdpa().ran, 5 * 2 * kLayers);
  EXPECT_LT(found.back(), 0.9 * found.front());  // it learns
  for (std::size_t update = 0; update < 5; ++update) {
    EXPECT_NEAR(found[update] / own[update], 1, 0.01) << update;
    EXPECT_NEAR(found[update] / expected[update], 1, 0.03) << update;
  }
}

}  // namespace
}  // namespace gaccd::tests
