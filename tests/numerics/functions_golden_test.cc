// Functions against PyTorch in double precision (tests/golden/make_functions.py, make_images.py).
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <sstream>

#include "daemon/ops/attention/attention.h"
#include "daemon/ops/attention/rotary.h"
#include "daemon/ops/image/channels_last.h"
#include "daemon/ops/image/conv2d.h"
#include "daemon/ops/image/pool2d.h"
#include "daemon/ops/layout/embedding.h"
#include "daemon/ops/loss/mean_squared_error.h"
#include "daemon/ops/loss/token_cross_entropy.h"
#include "daemon/ops/norm/group_norm.h"
#include "daemon/ops/norm/layer_norm.h"
#include "daemon/ops/norm/row_functions.h"
#include "daemon/ops/pointwise/activations.h"
#include "daemon/ops/pointwise/gated.h"
#include "daemon/ops/pointwise/number_functions.h"
#include "tests/support/graph_bench.h"

namespace gaccd {
namespace {

struct Tensor {
  Shape shape;
  std::vector<float> values;
};

// By name.
struct GoldenCase {
  std::map<std::string, Tensor> floats, ids, gradients;
  Tensor out;
};

Tensor ReadTensor(std::istringstream& in) {
  Tensor tensor;
  std::string shape;
  in >> shape;
  std::ranges::replace_if(
      shape, [](char c) { return c == '[' || c == ']' || c == ','; }, ' ');
  std::istringstream sizes(shape);
  for (std::int64_t size = 0; sizes >> size;) tensor.shape.push_back(size);
  for (float value = 0; in >> value;) tensor.values.push_back(value);
  EXPECT_EQ(static_cast<std::int64_t>(tensor.values.size()), Elements(tensor.shape)) << shape;
  return tensor;
}

std::map<std::string, GoldenCase> ReadCases(const std::string& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file.good()) << path;
  std::map<std::string, GoldenCase> cases;
  GoldenCase* current = nullptr;
  for (std::string line; std::getline(file, line);) {
    std::istringstream in(line);
    std::string key;
    std::string name;
    in >> key >> name;
    if (key == "case") {
      current = &cases[name];
    } else if (key == "out") {
      current->out = ReadTensor(in);
    } else {
      (key == "in"    ? current->floats
       : key == "ids" ? current->ids
                      : current->gradients)[name] = ReadTensor(in);
    }
  }
  return cases;
}

// The values of a case in a graph: what has a gradient is a parameter.
class GoldenGraph {
 public:
  explicit GoldenGraph(const GoldenCase& golden) {
    for (const auto& [name, tensor] : golden.floats) {
      if (golden.gradients.contains(name)) {
        values_[name] = bench.Parameter(name, tensor.shape);
        std::ranges::copy(tensor.values, bench.parameter(name).begin());
      } else {
        values_[name] = bench.Input(name, tensor.shape, tensor.values);
      }
    }
    for (const auto& [name, tensor] : golden.ids) {
      std::vector<std::int32_t> ids(tensor.values.begin(), tensor.values.end());
      values_[name] = bench.Ids(name, tensor.shape, std::move(ids));
    }
  }

  [[nodiscard]] std::vector<ValueId> At(const std::vector<std::string>& names) const {
    std::vector<ValueId> ids;
    for (const std::string& name : names) {
      if (values_.contains(name)) ids.push_back(values_.at(name));
    }
    return ids;
  }

  GraphBench bench;

 private:
  std::map<std::string, ValueId> values_;
};

struct Tested {
  std::shared_ptr<const Function> function;
  std::vector<std::string> inputs;
};

// The numbers that a function of images is made with: see make_images.py.
Tested MakeImageFunction(const std::string& name, const std::vector<float>& numbers) {
  const auto pair = [&](std::size_t i) {
    return ImagePair{static_cast<std::int64_t>(numbers[i]),
                     static_cast<std::int64_t>(numbers[i + 1])};
  };
  if (name.starts_with("conv2d")) {
    const Conv2dOptions options{.stride = pair(0),
                                .padding = pair(2),
                                .dilation = pair(4),
                                .groups = static_cast<std::int64_t>(numbers[6])};
    return {std::make_shared<Conv2d>(options), {"x", "weight", "bias"}};
  }
  if (name.starts_with("max_pool2d")) {
    const MaxPool2dOptions options{
        .kernel = pair(0), .stride = pair(2), .padding = pair(4), .dilation = pair(6)};
    return {std::make_shared<MaxPool2d>(options), {"x"}};
  }
  if (name.starts_with("avg_pool2d")) {
    const AvgPool2dOptions options{.kernel = pair(0),
                                   .stride = pair(2),
                                   .padding = pair(4),
                                   .count_include_pad = numbers[6] != 0};
    return {std::make_shared<AvgPool2d>(options), {"x"}};
  }
  if (name.starts_with("adaptive_avg_pool2d")) {
    return {std::make_shared<AdaptiveAvgPool2d>(pair(0)), {"x"}};
  }
  return {std::make_shared<GroupNorm>(static_cast<std::int64_t>(numbers[0])),
          {"x", "gamma", "beta"}};
}

Tested MakeFunction(const std::string& name) {
  const auto activation = [](ActivationKind kind) {
    return Tested{std::make_shared<Activation>(kind), {"x"}};
  };
  const auto attention = [](bool causal) {
    const AttentionOptions options{.heads = 2, .length = 50, .causal = causal};
    return Tested{std::make_shared<Attention>(options), {"q", "k", "v", "lengths"}};
  };
  const auto cross_entropy = [](float smoothing) {
    const TokenCrossEntropyOptions options{.label_smoothing = smoothing};
    return Tested{std::make_shared<TokenCrossEntropy>(options), {"z", "labels", "weights"}};
  };
  if (name == "gelu") return activation(ActivationKind::kGelu);
  if (name == "gelu_tanh") return activation(ActivationKind::kGeluTanh);
  if (name == "tanh") return activation(ActivationKind::kTanh);
  if (name == "silu") return activation(ActivationKind::kSilu);
  if (name == "sigmoid") return activation(ActivationKind::kSigmoid);
  if (name == "hardswish") return activation(ActivationKind::kHardswish);
  if (name == "leaky_relu")
    return {std::make_shared<NumberFunction>(NumberKind::kLeakyRelu, 0.01), {"x"}};
  if (name == "embedding") return {std::make_shared<Embedding>(), {"ids", "table"}};
  if (name == "layer_norm") return {std::make_shared<LayerNorm>(), {"x", "gamma", "beta"}};
  if (name == "rms_norm") return {std::make_shared<RmsNorm>(1e-6F), {"x", "gamma"}};
  if (name == "gated") return {std::make_shared<Gated>(ActivationKind::kSilu), {"a", "b"}};
  if (name == "rotary") {
    const RotaryOptions options{.length = 6, .group = 2};
    return {std::make_shared<Rotary>(options), {"x", "cos", "sin"}};
  }
  if (name == "softmax") return {std::make_shared<Softmax>(), {"x"}};
  if (name == "l2_normalize") return {std::make_shared<L2Normalize>(), {"x"}};
  if (name == "cross_entropy") return cross_entropy(0);
  if (name == "cross_entropy_smoothed") return cross_entropy(0.1F);
  if (name == "cross_entropy_weighted") return cross_entropy(0.1F);
  return attention(name == "attention_causal");
}

// Records the function of a case. Images are [N, C, H, W] in the file.
ValueId Record(const std::string& name, const GoldenCase& golden, GoldenGraph& recorded) {
  GraphBench& bench = recorded.bench;
  if (!golden.ids.contains("options")) {
    const Tested t = MakeFunction(name);
    return bench.Apply(t.function, recorded.At(t.inputs));
  }
  const Tested t = MakeImageFunction(name, golden.ids.at("options").values);
  std::vector<ValueId> inputs = recorded.At(t.inputs);
  inputs[0] = bench.Apply(std::make_shared<ChannelsLast>(), {inputs[0]});
  const ValueId y = bench.Apply(t.function, std::move(inputs));
  return bench.Rows(bench.Apply(std::make_shared<ChannelsFirst>(), {y}));
}

void ExpectEqual(const std::string& name, const GoldenCase& golden) {
  GoldenGraph recorded(golden);
  GraphBench& bench = recorded.bench;
  const ValueId y = Record(name, golden, recorded);
  const bool is_loss = golden.out.shape == Shape{1};
  if (!is_loss) bench.graph().MarkOutput(y);
  bench.PrepareTraining(is_loss ? y
                                : bench.Apply(std::make_shared<MeanSquaredError>(),
                                              {y, recorded.At({"targets"})[0]}));
  bench.Run();
  if (is_loss) {
    EXPECT_NEAR(bench.objective() / static_cast<double>(golden.out.values[0]), 1, 3e-7);
  } else {
    const auto* found = bench.executor().Output<float>(y);
    EXPECT_LT(RelativeError({found, golden.out.values.size()}, golden.out.values), 5e-7);
  }
  for (const auto& [input, gradient] : golden.gradients) {
    EXPECT_LT(RelativeError(bench.gradient(input), gradient.values), 1e-6) << input;
  }
}

void ExpectAllEqual(const std::string& file, std::size_t cases) {
  const auto read = ReadCases(file);
  EXPECT_EQ(read.size(), cases);
  for (const auto& [name, golden] : read) {
    SCOPED_TRACE(name);
    ExpectEqual(name, golden);
  }
}

TEST(FunctionsGoldenTest, EqualPyTorch) { ExpectAllEqual(GACCD_GOLDEN_DIR "/functions.txt", 17); }

TEST(FunctionsGoldenTest, FunctionsOfImagesEqualPyTorch) {
  ExpectAllEqual(GACCD_GOLDEN_DIR "/images.txt", 47);
}

}  // namespace
}  // namespace gaccd
