// One micro-batch of a GPT with the sizes that are large in GPT-2: 16384 rows, 50257 tokens, 1024
// positions. Loss and gradients on the GPU against f32 on the CPU. Few layers and a small width, so
// that the CPU needs seconds.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "collectives/base/strings.h"
#include "collectives/comm/communicator.h"
#include "daemon/engine/engine.h"
#include "daemon/tensor/sample.h"
#include "tests/gpu/gpu_test.h"
#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

struct Size {
  std::int64_t samples, vocabulary, context, layers, heads, width;
};
constexpr Size kLarge = {16, 50257, 1024, 1, 1, 64};
constexpr Size kOnStandIn = {5, 257, 48, 1, 2, 16};

// Of the loss, and of the gradient of any parameter (root of squares). In f32 the CPU and the GPU
// add 16384 terms in other orders; bf16 keeps 8 bits of every activation.
struct Bounds {
  double loss, gradient;
};

class LargeModel : public testing::Test {
 protected:
  LargeModel()
      : size_(CublasLtOfTest() == nullptr ? kLarge : kOnStandIn),
        model_(Model::MakeWithoutData({.loss = SoftmaxCrossEntropySpec{},
                                       .architecture = GptSpec{.vocabulary = size_.vocabulary,
                                                               .context = size_.context,
                                                               .layers = size_.layers,
                                                               .heads = size_.heads,
                                                               .width = size_.width}})
                   .value()),
        batch_(model_.sample(), size_.samples) {
    // Tokens of the whole vocabulary, and labels, each by a recurrence of its own.
    std::uint32_t state = 1;
    for (std::size_t t = 0; t < batch_.view().tensors.size(); ++t) {
      auto* const values = batch_.view().tensor<std::int32_t>(t);
      for (std::size_t i = 0; i < batch_.bytes(t).size() / sizeof(std::int32_t); ++i) {
        state = 1664525 * state + 1013904223;
        values[i] = static_cast<std::int32_t>((state >> 8) % size_.vocabulary);
      }
    }
  }

  struct Outcome {
    double loss = 0;
    std::vector<float> gradients;
  };
  Result<Outcome> Run(Device device, Precision precision) {
    const auto comm = MakeSingle();
    EngineOptions options;
    options.replica = {.micro_batches = {size_.samples}};
    options.optimizer = {.lr = 0, .kind = SgdSpec{}};
    options.numerics = {.precision = precision};
    options.choice = {.device = device, .cublaslt = CublasLtOfTest()};
    if (const auto dnn = DnnOfTest(); dnn.ok()) options.choice.dnn = *dnn;
    GACCD_ASSIGN_OR_RETURN(const auto engine, MakeEngine(*comm, model_, options));
    Outcome outcome;
    outcome.gradients.resize(static_cast<std::size_t>(model_.layout().size()));
    model_.Initialize(7, outcome.gradients);
    GACCD_RETURN_IF_ERROR(engine->SetParameters(outcome.gradients));
    GACCD_RETURN_IF_ERROR(engine->Begin({.samples = size_.samples}));
    GACCD_RETURN_IF_ERROR(engine->MicroStep(batch_.view(), {.first = true, .last = true}));
    GACCD_RETURN_IF_ERROR(engine->Reduce());
    GACCD_RETURN_IF_ERROR(engine->MeasureGradient());
    GACCD_RETURN_IF_ERROR(engine->Audit());
    GACCD_RETURN_IF_ERROR(engine->Optimize());
    GACCD_RETURN_IF_ERROR(engine->End());
    GACCD_ASSIGN_OR_RETURN(const auto result, engine->PopResult(/*wait=*/true));
    outcome.loss = result->loss;
    GACCD_RETURN_IF_ERROR(engine->GetGradients(outcome.gradients));
    return outcome;
  }

  void Compare(const Outcome& expected, Precision precision, const Bounds& same) {
    SCOPED_TRACE(Name(precision));
    const auto found = ValueOrThrow(Run(Device::kCuda, precision));
    const double loss = std::abs(found.loss / expected.loss - 1);
    double worst = 0;
    std::string of;
    for (const FlatEntry& entry : model_.layout().entries()) {
      const auto part = [&](const std::vector<float>& values) {
        return std::span(values).subspan(static_cast<std::size_t>(entry.offset),
                                         static_cast<std::size_t>(entry.elements));
      };
      const double difference = RelativeDifference(part(found.gradients), part(expected.gradients));
      EXPECT_LT(difference, same.gradient) << entry.name;
      if (worst < difference) of = entry.name;
      worst = std::max(worst, difference);
    }
    EXPECT_LT(loss, same.loss);
    PrintRow(StrCat("GPT of ", size_.samples * size_.context, " rows, ", size_.vocabulary,
                    " tokens, in ", Name(precision), " against the CPU"),
             !HasFailure(), StrCat("loss within ", same.loss, ", gradients ", same.gradient),
             StrCat(loss, ", ", worst, " of ", of));
  }

  Size size_;
  Model model_;
  BatchMemory batch_;
};

TEST_F(LargeModel, LossAndGradientsEqualCpu) {
  const auto expected = ValueOrThrow(Run(Device::kCpu, Precision::kF32));
  // Labels that nothing predicts.
  EXPECT_NEAR(expected.loss, std::log(static_cast<double>(size_.vocabulary)), 0.5);
  Compare(expected, Precision::kF32, {1e-6, 1e-4});
  Compare(expected, Precision::kBF16, {1e-3, 3e-2});
}

}  // namespace
}  // namespace gaccd
