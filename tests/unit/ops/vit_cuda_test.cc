// A Vision Transformer on the GPU against the CPU: the loss and the gradient of every parameter.
#include <algorithm>

#include "collectives/base/strings.h"
#include "tests/support/gpu_bench.h"
#include "tests/support/model_bench.h"
#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

constexpr std::int64_t kImages = 9;

ModelSpec MakeVitSpec(VitPool pool) {
  return {.loss = SoftmaxCrossEntropySpec{},
          .architecture = VitSpec{.image_size = 8,
                                  .patch_size = 2,
                                  .channels = 3,
                                  .width = 16,
                                  .depth = 2,
                                  .heads = 2,
                                  .classes = 10,
                                  .pool = pool}};
}

// The largest relative error of any parameter's gradient.
double LargestError(const Model& model, std::span<const float> found,
                    std::span<const float> expected) {
  double largest = 0;
  for (const FlatEntry& entry : model.layout().entries()) {
    const auto first = static_cast<std::size_t>(entry.offset);
    const auto count = static_cast<std::size_t>(entry.elements);
    const double error = RelativeError(found.subspan(first, count), expected.subspan(first, count));
    largest = std::max(largest, error);
  }
  return largest;
}

TEST(VitCuda, TrainsLikeCpu) {
  const SampleSpec spec = LabelledSample({3, 8, 8}, 10);
  constexpr float kPredictionWeight = 1.0F / kImages;
  for (const VitPool pool : {VitPool::kToken, VitPool::kAvg}) {
    const Model model = ValueOrThrow(Model::Make(MakeVitSpec(pool), spec));
    Samples samples(spec, kImages, 5);
    BenchTrainer cpu(model, {.micro_batches = {kImages}});
    // Larger weights: else the first attention hardly differs between keys.
    for (float& value : cpu.parameters()) value *= 4;
    cpu.ParametersChanged();
    const double loss = cpu.MicroStep(samples.All(), kPredictionWeight, true);
    const std::pair<Precision, double> tolerances[] = {
        {Precision::kF32, 3e-6}, {Precision::kBF16, 0.06}, {Precision::kFP16, 0.01}};
    for (const auto& [precision, tolerance] : tolerances) {
      SCOPED_TRACE(StrCat(pool == VitPool::kAvg ? "avg" : "token", ", ", Name(precision)));
      const auto recorded = ValueOrThrow(model.RecordTraining({kImages}, precision));
      const DType copy = precision == Precision::kF32    ? DType::kF32
                         : precision == Precision::kBF16 ? DType::kBF16
                                                         : DType::kFP16;
      GpuBench gpu(recorded.graph, model.layout(), cpu.parameters(), {.copy = copy});
      ASSERT_FALSE(HasFatalFailure());
      gpu.BindInput(recorded.weight, std::span(&kPredictionWeight, 1));
      for (const nn::GraphInput& input : recorded.inputs) {
        if (input.name == "features") {
          gpu.BindInput(input.value, std::span<const float>(samples.features));
        } else {
          gpu.BindInput(input.value, std::span<const std::int32_t>(samples.labels));
        }
      }
      gpu.Run();
      EXPECT_NEAR(gpu.Output<double>(recorded.loss_sum) / loss, 1, tolerance);
      EXPECT_LT(LargestError(model, gpu.gradients(), cpu.gradients()), tolerance);
    }
  }
}

}  // namespace
}  // namespace gaccd
