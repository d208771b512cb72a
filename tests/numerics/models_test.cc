// GPT-2 and BERT against Hugging Face's in double precision (tests/golden/make_models.py), Vision
// Transformers against timm's (make_vit.py): logits and the gradient of every parameter, from
// weights files with their names.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "collectives/base/memory.h"
#include "collectives/base/strings.h"
#include "daemon/autograd/executor.h"
#include "daemon/autograd/function.h"
#include "daemon/device/cpu/cpu_context.h"
#include "daemon/device/cpu/onednn.h"
#include "daemon/device/cpu/packed_weights.h"
#include "daemon/models/network.h"
#include "daemon/ops/cpu_kernels.h"
#include "daemon/ops/layout/reshape.h"
#include "daemon/ops/loss/token_cross_entropy.h"
#include "daemon/ops/product/bf16_products.h"
#include "daemon/weights/safetensors.h"
#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

constexpr std::int64_t kSamples = 9;
constexpr std::int64_t kLength = 10;
constexpr std::int64_t kVocabulary = 23;

std::string GoldenPath(const std::string& file) {
  return StrCat(GACCD_GOLDEN_DIR "/models/", file);
}

template <typename T>
T Value(Result<T> result) {
  if (!result.ok()) ADD_FAILURE() << result.status().message();
  return std::move(result).value();
}

// The first `count` elements of an array.
template <typename T>
std::vector<T> ReadElements(const std::string& file, std::size_t count) {
  std::ifstream in(GoldenPath(file), std::ios::binary);
  EXPECT_TRUE(in.good()) << file;
  constexpr std::streamoff kHeader = 128;
  in.seekg(kHeader);
  std::vector<T> values(count);
  in.read(reinterpret_cast<char*>(values.data()), static_cast<std::streamsize>(count * sizeof(T)));
  EXPECT_TRUE(in.good()) << file;
  return values;
}

// Of 4 bytes an element; those of floats as their bits.
std::vector<std::int32_t> ReadNpy(const std::string& file, std::size_t count) {
  return ReadElements<std::int32_t>(file, count);
}

// Pixels as the jobs normalize them, as their bits.
std::vector<std::int32_t> ReadPixels(const std::string& file, std::size_t count) {
  std::vector<std::int32_t> values;
  for (const std::uint8_t pixel : ReadElements<std::uint8_t>(file, count)) {
    values.push_back(std::bit_cast<std::int32_t>(static_cast<float>((pixel / 256.0 - 0.5) / 0.25)));
  }
  return values;
}

std::map<std::string, NamedTensor> ReadTensors(const std::string& file) {
  std::map<std::string, NamedTensor> tensors;
  for (NamedTensor& tensor : Value(ReadSafetensors(GoldenPath(file))).tensors) {
    tensors.emplace(tensor.name, std::move(tensor));
  }
  return tensors;
}

// "error TENSOR VALUE": how far PyTorch's own f32 is off, root of the mean square.
std::map<std::string, double> ReadErrors(const std::string& file) {
  std::map<std::string, double> errors;
  std::ifstream in(GoldenPath(file));
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string key;
    std::string name;
    words >> key >> name;
    if (key == "error") words >> errors[name];
  }
  return errors;
}

double RootMeanSquare(std::span<const float> a, std::span<const float> b) {
  EXPECT_EQ(a.size(), b.size());
  double squares = 0;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    squares += std::pow(double{a[i]} - double{b[i]}, 2);
  }
  return std::sqrt(squares / static_cast<double>(a.size()));
}

// A network that was run forward and backward over the first samples of the golden data.
class GoldenTraining {
 public:
  GoldenTraining(const ModelSpec& spec, const std::string& name)
      : network_(MakeNetwork(spec).value()) {
    for (const nn::ParameterSpec& parameter : network_->parameters().specs()) {
      EXPECT_TRUE(layout_.Add(parameter.name, parameter.shape).ok());
    }
    const auto elements = static_cast<std::size_t>(layout_.size());
    parameters_.resize(elements);
    gradients_.resize(elements);
    for (const auto& [tensor_name, tensor] : ReadTensors(name + ".init")) {
      const FlatEntry* entry = layout_.Find(tensor_name);
      if (entry == nullptr || entry->shape != tensor.shape) {
        ADD_FAILURE() << tensor_name << " " << ToString(tensor.shape);
        continue;
      }
      std::ranges::copy(tensor.values, parameters_.begin() + entry->offset);
    }
  }

  // `tensors` by name: the content of kSamples samples.
  void Train(const SampleSpec& sample, std::map<std::string, std::vector<std::int32_t>> tensors,
             const TokenCrossEntropyOptions& options = {}, Precision precision = Precision::kF32) {
    Graph graph;
    nn::Recorder recorder(graph, network_->parameters(), sample, {.samples = kSamples});
    logits_ = network_->Record(recorder);
    const auto rows = recorder.shape(logits_)[0];
    std::vector<ValueId> inputs = {logits_};
    for (const char* name : {"labels", "weights"}) {
      if (!tensors.contains(name)) continue;
      inputs.push_back(
          recorder.Apply(name, std::make_shared<Reshape>(Shape{rows}), {recorder.Input(name)}));
    }
    const bool weighted = inputs.size() == 3;
    const ValueId loss =
        recorder.Apply("loss", std::make_shared<TokenCrossEntropy>(options), inputs);
    ASSERT_TRUE(recorder.status().ok()) << recorder.status().message();
    graph.MarkOutput(logits_);
    graph.MarkOutput(loss);
    const ValueId weight = graph.AddInput("weight", {{1}, DType::kF32});
    ASSERT_OK(RecordGradients(graph, loss, weight));
    if (precision == Precision::kBF16) {
      ASSERT_OK(RoundProductsToBf16(graph));
    }

    auto context = Value(CpuContext::Create());
    const auto kernels = MakeCpuKernels(*context, {.runs_per_update = 1});
    const auto executor = Value(Executor::Prepare(
        std::move(graph), {&layout_, parameters_.data(), gradients_.data()}, *kernels));
    const HostBuffer arena = Value(
        HostBuffer::Allocate(static_cast<std::size_t>(executor->arena_bytes()), "activations"));
    const HostBuffer scratch =
        Value(HostBuffer::Allocate(static_cast<std::size_t>(executor->scratch_bytes()), "scratch"));
    executor->Attach(arena.data(), scratch.data());
    ASSERT_OK(context->packed_weights().Repack());
    float divisor = weighted ? 0 : static_cast<float>(rows);
    for (std::size_t i = 0; weighted && i < tensors.at("labels").size(); ++i) {
      if (tensors.at("labels")[i] == options.ignored_label) continue;
      divisor += std::bit_cast<float>(tensors.at("weights")[i]);
    }
    const float one = 1 / divisor;
    executor->BindInput(weight, &one);
    for (const nn::GraphInput& input : recorder.inputs()) {
      executor->BindInput(input.value, tensors.at(input.name).data());
    }
    ASSERT_OK(executor->Run(true));
    const float* output = executor->Output<float>(logits_);
    logit_values_.assign(output, output + Elements(executor->graph().value(logits_).spec.shape));
  }

  // Ours sum in another order than PyTorch's f32 and may be a few times as far off; no tensor need
  // be better than so much of the largest one: half a unit in the last place, or what a few values
  // do that are rounded to the other of two bf16 (the rounding itself: 20 times as much).
  static constexpr double kHalfUnit = 0x1p-25;
  static constexpr double kOtherRounding = 5e-5;

  void Compare(const std::string& name, double least = kHalfUnit) {
    const auto golden = ReadTensors(name + ".first");
    const auto errors = ReadErrors(name + ".txt");
    ASSERT_EQ(golden.size(), layout_.entries().size() + 1);
    const double floor = least * GradientScale(golden);
    CompareOne(golden.at("logits").values, logit_values_, "logits",
               4 * std::max(errors.at("logits"), least * Scale(golden.at("logits"))));
    for (const FlatEntry& entry : layout_.entries()) {
      const std::string key = "gradient." + entry.name;
      ASSERT_TRUE(golden.contains(key)) << key;
      CompareOne(golden.at(key).values, EntryGradient(entry), key,
                 4 * std::max(errors.at(key), floor));
    }
  }

 private:
  static double GradientScale(const std::map<std::string, NamedTensor>& golden) {
    double largest = 0;
    for (const auto& [name, tensor] : golden) {
      if (name == "logits") continue;
      largest = std::max(largest, Scale(tensor));
    }
    return largest;
  }

  static double Scale(const NamedTensor& tensor) {
    return RootMeanSquare(tensor.values, std::vector<float>(tensor.values.size()));
  }

  static void CompareOne(std::span<const float> expected, std::span<const float> found,
                         const std::string& name, double tolerance) {
    EXPECT_LE(RootMeanSquare(found, expected), tolerance) << name;
  }

  std::span<const float> EntryGradient(const FlatEntry& entry) const {
    return std::span<const float>(gradients_)
        .subspan(static_cast<std::size_t>(entry.offset), static_cast<std::size_t>(entry.elements));
  }

  std::shared_ptr<const Network> network_;
  FlatLayout layout_;
  std::vector<float> parameters_;
  std::vector<float> gradients_;
  ValueId logits_ = nn::kNoValue;
  std::vector<float> logit_values_;
};

TEST(ModelsTest, Gpt2EqualsHuggingFace) {
  constexpr std::size_t kTokens = kSamples * kLength;
  GoldenTraining run({.architecture = GptSpec{.vocabulary = kVocabulary,
                                              .context = kLength,
                                              .layers = 2,
                                              .heads = 3,
                                              .width = 12}},
                     "gpt_mini");
  SampleSpec sample{
      .tensors = {{"tokens", DType::kI32, {kLength}}, {"labels", DType::kI32, {kLength}}},
      .vocabulary = kVocabulary};
  run.Train(sample, {{"tokens", ReadNpy("gpt_tokens.npy", kTokens)},
                     {"labels", ReadNpy("gpt_labels.npy", kTokens)}});
  run.Compare("gpt_mini");
  // With weights, labels that are missing, and label smoothing.
  sample.tensors.push_back({"weights", DType::kF32, {kLength}});
  run.Train(sample,
            {{"tokens", ReadNpy("gpt_tokens.npy", kTokens)},
             {"labels", ReadNpy("gpt_some_labels.npy", kTokens)},
             {"weights", ReadNpy("gpt_weights.npy", kTokens)}},
            {.ignored_label = -1, .label_smoothing = 0.1F});
  run.Compare("gpt_weighted");
  if (DetectCpuBf16() == CpuBf16::kNone)
    GTEST_SKIP() << "bf16: this CPU has " << Name(DetectCpuBf16());
  sample.tensors.pop_back();
  run.Train(sample,
            {{"tokens", ReadNpy("gpt_tokens.npy", kTokens)},
             {"labels", ReadNpy("gpt_labels.npy", kTokens)}},
            {}, Precision::kBF16);
  run.Compare("gpt_bf16", GoldenTraining::kOtherRounding);
}

TEST(ModelsTest, BertEqualsHuggingFace) {
  constexpr std::size_t kTokens = kSamples * kLength;
  GoldenTraining run({.architecture = BertSpec{.vocabulary = kVocabulary,
                                               .context = kLength,
                                               .layers = 2,
                                               .heads = 3,
                                               .width = 12,
                                               .hidden = 20,
                                               .classes = 3}},
                     "bert_mini");
  SampleSpec sample{.tensors = {{"tokens", DType::kI32, {kLength}},
                                {"segments", DType::kI32, {kLength}},
                                {"lengths", DType::kI32, {}},
                                {"labels", DType::kI32, {}}},
                    .vocabulary = kVocabulary};
  std::map<std::string, std::vector<std::int32_t>> tensors = {
      {"tokens", ReadNpy("bert_tokens.npy", kTokens)},
      {"segments", ReadNpy("bert_segments.npy", kTokens)},
      {"lengths", ReadNpy("bert_lengths.npy", kSamples)},
      {"labels", ReadNpy("bert_labels.npy", kSamples)}};
  run.Train(sample, tensors);
  run.Compare("bert_mini");
  // With a weight for each sample, and label smoothing.
  sample.tensors.push_back({"weights", DType::kF32, {}});
  tensors["weights"] = ReadNpy("bert_weights.npy", kSamples);
  run.Train(sample, tensors, {.label_smoothing = 0.2F});
  run.Compare("bert_weighted");
  if (DetectCpuBf16() == CpuBf16::kNone)
    GTEST_SKIP() << "bf16: this CPU has " << Name(DetectCpuBf16());
  sample.tensors.pop_back();
  tensors.erase("weights");
  run.Train(sample, tensors, {}, Precision::kBF16);
  run.Compare("bert_bf16", GoldenTraining::kOtherRounding);
}

TEST(ModelsTest, VitEqualsTimm) {
  const Shape image = {3, 8, 8};
  const SampleSpec sample{
      .tensors = {{"features", DType::kF32, image}, {"labels", DType::kI32, {}}}};
  const std::map<std::string, std::vector<std::int32_t>> tensors = {
      {"features",
       ReadPixels("vit_images.npy", static_cast<std::size_t>(kSamples * Elements(image)))},
      {"labels", ReadNpy("vit_labels.npy", kSamples)}};
  const VitSpec of_token{
      .image_size = 8, .patch_size = 2, .width = 12, .depth = 2, .heads = 3, .classes = 4};
  VitSpec of_mean = of_token;
  of_mean.patch_size = 4;
  of_mean.depth = 1;
  of_mean.heads = 2;
  of_mean.mlp_ratio = 2.5;
  of_mean.pool = VitPool::kAvg;
  GoldenTraining mean({.architecture = of_mean}, "vitavg_mini");
  mean.Train(sample, tensors);
  mean.Compare("vitavg_mini");
  GoldenTraining run({.architecture = of_token}, "vit_mini");
  run.Train(sample, tensors);
  run.Compare("vit_mini");
  if (DetectCpuBf16() == CpuBf16::kNone)
    GTEST_SKIP() << "bf16: this CPU has " << Name(DetectCpuBf16());
  run.Train(sample, tensors, {}, Precision::kBF16);
  run.Compare("vit_bf16", GoldenTraining::kOtherRounding);
}

}  // namespace
}  // namespace gaccd
