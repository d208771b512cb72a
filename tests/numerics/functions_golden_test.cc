// Functions against PyTorch in double precision (tests/golden/make_functions.py).
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>

#include "daemon/ops/activations.h"
#include "daemon/ops/attention.h"
#include "daemon/ops/embedding.h"
#include "daemon/ops/layer_norm.h"
#include "daemon/ops/mean_squared_error.h"
#include "daemon/ops/row_functions.h"
#include "daemon/ops/token_cross_entropy.h"
#include "tests/unit/engine/graph_bench.h"

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
class Recorded {
 public:
  explicit Recorded(const GoldenCase& golden) {
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

Tested FunctionOf(const std::string& name) {
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
  if (name == "embedding") return {std::make_shared<Embedding>(), {"ids", "table"}};
  if (name == "layer_norm") return {std::make_shared<LayerNorm>(), {"x", "gamma", "beta"}};
  if (name == "softmax") return {std::make_shared<Softmax>(), {"x"}};
  if (name == "l2_normalize") return {std::make_shared<L2Normalize>(), {"x"}};
  if (name == "cross_entropy") return cross_entropy(0);
  if (name == "cross_entropy_smoothed") return cross_entropy(0.1F);
  if (name == "cross_entropy_weighted") return cross_entropy(0.1F);
  return attention(name == "attention_causal");
}

TEST(FunctionsGoldenTest, EqualPyTorch) {
  const auto cases = ReadCases(GACCD_GOLDEN_DIR "/functions.txt");
  EXPECT_EQ(cases.size(), 14U);
  for (const auto& [name, golden] : cases) {
    SCOPED_TRACE(name);
    Recorded recorded(golden);
    GraphBench& bench = recorded.bench;
    const Tested t = FunctionOf(name);
    const ValueId y = bench.Apply(t.function, recorded.At(t.inputs));
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
}

}  // namespace
}  // namespace gaccd
