// Exported networks: which functions they become, what is refused.
// What they compute: tests/golden/graphs.
#include "daemon/models/graph_network.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <span>

#include "collectives/base/strings.h"
#include "daemon/autograd/function.h"
#include "daemon/replica/model.h"
#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

using ::testing::HasSubstr;

ModelSpec GoldenSpec(const std::string& name) {
  return {.loss = SoftmaxCrossEntropySpec{},
          .architecture = GraphSpec{.path = StrCat(GACCD_GOLDEN_DIR "/graphs/", name)}};
}

std::map<std::string, int> CountByFunction(const std::string& name) {
  const auto model = Model::MakeWithoutData(GoldenSpec(name));
  EXPECT_TRUE(model.ok()) << model.status().message();
  if (!model.ok()) return {};
  const auto graph = model->RecordEvaluation({3});
  EXPECT_TRUE(graph.ok()) << graph.status().message();
  std::map<std::string, int> counts;
  for (const Node& node : graph->graph.nodes()) ++counts[std::string(node.function->name())];
  return counts;
}

TEST(GraphNetworkTest, ExchangedDimensionsNeedNoCopy) {
  const auto transformer = CountByFunction("transformer");
  EXPECT_EQ(transformer.at("attention"), 2);
  EXPECT_EQ(transformer.at("add_positions"), 2);
  EXPECT_FALSE(transformer.contains("channels_last"));
  EXPECT_EQ(transformer.at("reshape"), 1);  // of a parameter [1, 5, 8]
}

TEST(GraphNetworkTest, CopiesOnlyFeaturesToChannelsLast) {
  const auto residual = CountByFunction("residual");
  EXPECT_EQ(residual.at("conv2d"), 4);
  EXPECT_EQ(residual.at("channels_last"), 1);
}

TEST(GraphNetworkTest, ParametersEqualStateDict) {
  const auto tied = MakeNetwork(GoldenSpec("tied"));
  ASSERT_TRUE(tied.ok());
  EXPECT_EQ((*tied)->parameters().specs().size(), 4U);  // second.weight is first.weight
  EXPECT_EQ((*tied)->weight_names().tied.at("second.weight"), "first.weight");
  const auto residual = MakeNetwork(GoldenSpec("residual"));
  ASSERT_TRUE(residual.ok());
  for (const nn::ParameterSpec& spec : (*residual)->parameters().specs()) {
    const bool running = spec.name.find("running_") != std::string::npos;
    EXPECT_EQ(spec.buffer, running || spec.name.ends_with("num_batches_tracked")) << spec.name;
    const bool one = spec.name.ends_with("running_var") || spec.name == "1.weight" ||
                     spec.name.ends_with("bn1.weight") || spec.name.ends_with("norm2.weight") ||
                     spec.name.ends_with("downsample.1.weight");
    EXPECT_EQ(
        spec.initializer.kind == nn::Initializer::Kind::kConstant && spec.initializer.scale == 1,
        one)
        << spec.name;
  }
}

TEST(GraphNetworkTest, DigestDetectsChangedFile) {
  Job job;
  job.model = GoldenSpec("mlp");
  const auto resolved = WithGraphDigest(job);
  ASSERT_TRUE(resolved.ok());
  auto spec = std::get<GraphSpec>(resolved->model.architecture);
  ASSERT_TRUE(spec.digest);
  EXPECT_TRUE(GraphNetwork::Load(spec).ok());
  spec.digest = "0123";
  EXPECT_THAT(GraphNetwork::Load(spec), IsError(ErrorKind::kConfig, "expected the digest 0123"));
}

// A graph of one linear layer and a relu, and what is wrong with it after a change.
constexpr std::string_view kGood = R"graph(version: 1
input { name: "features" size: -1 size: 6 }
parameter { name: "w" size: 4 size: 6 }
node { name: "y" op: "linear" input: "features" input: "w"
  attribute { name: "in_out" integer: 0 } source: "fc (net.py:7)" }
node { name: "z" op: "relu" input: "y" }
output: "z"
)graph";

std::string With(std::string_view from, std::string_view to) {
  std::string text(kGood);
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

Status ParseStatus(const std::string& text) {
  auto graph = ParseGraph(text, "g");
  if (!graph.ok()) return graph.status();
  auto network = GraphNetwork::Make(*std::move(graph), NormStatistics{}, "g");
  if (!network.ok()) return network.status();
  return Model::Make(*std::move(network), LossKind::kSoftmaxCrossEntropy, LabelledSample({6}, 4))
      .status();
}

TEST(GraphNetworkTest, RefusalsNameNodeAndLine) {
  EXPECT_TRUE(ParseStatus(std::string(kGood)).ok()) << ParseStatus(std::string(kGood)).message();
  const auto expect = [](std::string_view from, std::string_view to, const std::string& message) {
    EXPECT_THAT(ParseStatus(With(from, to)), IsError(ErrorKind::kConfig, message)) << to;
  };
  expect("version: 1", "version: 2", "version: expected 1, found 2");
  expect("version: 1", "version 1", "g:1:9: ");
  expect("op: \"relu\"", "op: \"cumsum\"", "node 'z': gaccd has no op 'cumsum'");
  expect("input: \"y\"", "input: \"q\"", "node 'z': no value before it is called 'q'");
  expect("input: \"y\"", "input: \"z\"", "node 'z': no value before it is called 'z'");  // a cycle
  expect("name: \"z\"", "name: \"y\"", "two values are called 'y'");
  expect("output: \"z\"", "output: \"q\"", "output: no value is called 'q'");
  expect("size: 4 size: 6", "size: 4 size: 7",
         "node 'y' (fc (net.py:7)): linear: the weight [4, 7]");
  expect("size: 4 size: 6", "size: 4 size: 0", "parameter 'w': sizes: expected at least 1");
  expect("size: 4 size: 6", "size: -4 size: 6", "parameter 'w': sizes: expected at least 1");
  expect("size: 4 size: 6", "size: 1099511627776 size: 1099511627776", "parameter 'w'");
  expect("integer: 0", "integer: 2",
         "node 'y' (fc (net.py:7)): linear: in_out: expected 1 integers");
  expect("integer: 0", "number: 0.5", "linear: in_out: expected integers, found none");
  expect("integer: 0", "number: nan", "expected integers or one finite number");
  expect("in_out", "inout", "linear: in_out: expected integers, found none");
  expect(" source:", " attribute { name: \"more\" integer: 1 } source:",
         "expected 1 attributes, found 2");
  expect("input: \"features\" input: \"w\"", "input: \"features\"",
         "expected 2 to 3 inputs, found 1");
  expect("parameter { name: \"w\"", "parameter { name: \"constant:0\"",
         "parameter 'constant:0': expected the values of a constant");
  expect("size: 4 size: 6", "size: 4 size: 6 value: 1", "expected the values of a constant");
  expect("input: \"features\" input: \"w\"", "input: \"features\" input: \"features\"",
         "expected a parameter as input 1, found 'features'");
  expect("size: 6 }\nnode", "size: 6 buffer: true }\nnode",
         "expected a parameter that is no buffer");
  expect("parameter {", "parameter { name: \"v\" size: 1 }\nparameter {",
         "no node uses the parameter 'v'");
  expect("size: -1 size: 6", "size: 6", "input 'features': expected the first size to be -1");
  expect("size: -1 size: 6", "size: -1 size: 3 size: 2", "node 'y'");
  expect("size: -1 size: 6", "size: -1 size: 7",
         "the model was exported for the shape [7], but the data has [6]");
  const auto shorter = [](std::string_view lengths_and_nodes) {
    return StrCat("output: \"z\" shorter { ", lengths_and_nodes, " }");
  };
  const std::string_view whole = "output: \"z\"";
  constexpr std::string_view kNode =
      "node { name: \"v\" op: \"relu\" input: \"features\" } output: \"v\"";
  EXPECT_TRUE(ParseStatus(With(whole, shorter(StrCat("length: 3 ", kNode)))).ok());
  expect(whole, shorter(StrCat("length: 0 ", kNode)), "expected ascending lengths");
  expect(whole, shorter(StrCat("length: 3 ", kNode, " } shorter { length: 3 ", kNode)),
         "expected ascending lengths of at least 1, found 3 after 3");
  expect(whole, shorter("length: 3 output: \"v\""), "for 3 tokens: output: no value is called 'v'");
  expect(whole, shorter("length: 3 output: \"w\""), "for 3 tokens: output: expected a value");
  expect(whole,
         shorter("length: 3 node { name: \"v\" op: \"cumsum\" input: \"features\" } output: \"v\""),
         "for 3 tokens: node 'v': gaccd has no op 'cumsum'");
  expect("op: \"relu\" input: \"y\"",
         "op: \"masked_attention\" attribute { name: \"causal\" integer: 1 } input: \"y\" "
         "input: \"y\" input: \"y\" input: \"y\"",
         "expected [samples, heads, length, width] and a mask [samples, length]");
}

// 100 bytes of a file would take 64 MB each.
TEST(GraphNetworkTest, ConstantsOfOneValueAreLimited) {
  std::string text = "version: 1\n";
  for (int i = 0; i < 5; ++i) {
    text += StrCat("parameter { name: \"constant:", i, "\" size: 4096 size: 4096 value: 0 }\n");
  }
  EXPECT_THAT(ParseGraph(text, "g"),
              IsError(ErrorKind::kConfig, "'constant:4': expected at most 67108864 values"));
}

// What a graph gives out is copied from the value that it is a part of.
TEST(GraphNetworkTest, PartMayBeOutput) {
  const auto with = [](std::string_view last) {
    std::string text = With("size: 4 size: 6", "size: 9 size: 6");
    constexpr std::string_view kRelu = R"(name: "z" op: "relu" input: "y")";
    return text.replace(text.find(kRelu), kRelu.size(), last);
  };
  const std::string slice = R"(op: "slice" input: "y" attribute { name: "dim" integer: 1 }
      attribute { name: "start" integer: 1 } attribute { name: "end" integer: 5 }
      attribute { name: "keepdim" integer: 1 })";
  const Status part = ParseStatus(with(StrCat(R"(name: "z" )", slice)));
  EXPECT_TRUE(part.ok()) << part.message();
  const Status view = ParseStatus(with(StrCat(R"(name: "s" )", slice, R"( }
      node { name: "z" op: "view" input: "s" attribute { name: "size" integer: -1 integer: 4 })")));
  EXPECT_TRUE(view.ok()) << view.message();
}

TEST(GraphNetworkTest, SharedValuesMayBeRowMatrixOrImages) {
  const auto status_of = [](std::string_view parameters, std::string_view nodes) {
    const std::string text = With("node { name: \"z\" op: \"relu\" input: \"y\" }", nodes);
    const Status status = ParseStatus(StrCat(text, parameters));
    return status.ok() ? std::string() : std::string(status.message());
  };
  EXPECT_EQ(status_of(R"(parameter { name: "v" size: 4 })",
                      R"(node { name: "s" op: "softmax" input: "v" }
      node { name: "z" op: "mul" input: "y" input: "s" })"),
            "");
  constexpr std::string_view kProduct =
      R"(node { name: "s" op: "scale" input: "v" attribute { name: "factor" number: 2 } }
      node { name: "z" op: "matmul" input: "y" input: "s" attribute { name: "transpose" integer: 1 } })";
  EXPECT_EQ(status_of(R"(parameter { name: "v" size: 4 size: 4 })", kProduct), "");
  const auto with_images = [&](std::string_view of, std::string_view size) {
    return status_of(
        R"(parameter { name: "v" size: 1 size: 2 size: 2 size: 2 }
        parameter { name: "k" size: 4 size: 2 size: 1 size: 1 })",
        StrCat(R"(node { name: "i" op: "view" input: ")", of, R"(" attribute { name: "size" )",
               size, R"( } }
        node { name: "c" op: "conv2d" input: "i" input: "k"
          attribute { name: "stride" integer: 1 integer: 1 }
          attribute { name: "padding" integer: 0 integer: 0 }
          attribute { name: "dilation" integer: 1 integer: 1 }
          attribute { name: "groups" integer: 1 } }
        node { name: "m" op: "mean_image" input: "c" attribute { name: "keepdim" integer: 0 } }
        node { name: "p" op: "mul" input: "y" input: "m" }
        node { name: "w2" op: "sum" input: "v" attribute { name: "dims" integer: 1 integer: 2
          integer: 3 } attribute { name: "keepdim" integer: 0 } }
        node { name: "z" op: "mul" input: "p" input: "w2" })"));
  };
  EXPECT_EQ(with_images("v", "integer: 1 integer: 2 integer: 2 integer: 2"), "");
  EXPECT_THAT(with_images("y", "integer: 1 integer: -4 integer: 1 integer: 1"),
              HasSubstr("expected [samples, channels, height, width]"));
}

TEST(GraphNetworkTest, ConvolutionWeightsMayBeComputedFromParametersOnly) {
  const auto with_weight = [](std::string_view op, std::string_view nodes) {
    const std::string text = With(
        "node { name: \"z\" op: \"relu\" input: \"y\" }",
        StrCat(
            nodes, R"(node { name: "i" op: "view" input: "y" attribute { name: "size"
          integer: -1 integer: 4 integer: 1 integer: 1 } }
        node { name: "c" op: ")",
            op, R"(" input: "i" input: "w2"
          attribute { name: "stride" integer: 1 integer: 1 }
          attribute { name: "padding" integer: 0 integer: 0 }
          attribute { name: "dilation" integer: 1 integer: 1 })",
            op == "conv2d" ? "" : R"(attribute { name: "output_padding" integer: 0 integer: 0 })",
            R"( attribute { name: "groups" integer: 1 } }
        node { name: "z" op: "mean_image" input: "c" attribute { name: "keepdim" integer: 0 } })"));
    const Status status =
        ParseStatus(StrCat(text, R"(parameter { name: "k" size: 4 size: 4 size: 1 size: 1 })"));
    return status.ok() ? std::string() : std::string(status.message());
  };
  constexpr std::string_view kExchanged = R"(node { name: "s" op: "scale" input: "k"
        attribute { name: "factor" number: 2 } }
      node { name: "w2" op: "permute" input: "s" attribute { name: "dims" integer: 1 integer: 0
        integer: 2 integer: 3 } })";
  constexpr std::string_view kOfSamples = R"(node { name: "w2" op: "view" input: "y"
        attribute { name: "size" integer: -1 integer: 4 integer: 1 integer: 1 } }
      node { name: "s" op: "scale" input: "k" attribute { name: "factor" number: 2 } })";
  for (const std::string_view op : {"conv2d", "conv_transpose2d"}) {
    EXPECT_EQ(with_weight(op, kExchanged), "");
    EXPECT_THAT(with_weight(op, kOfSamples),
                HasSubstr("expected a weight of 3 or 4 dimensions, the same for all samples"));
  }
}

// Texts of 8 tokens, or of 4, through these nodes from x [B, T, 6] to y, at `length`.
std::shared_ptr<const Network> OfTexts(std::string (*nodes)(std::int64_t length),
                                       std::string_view parameters,
                                       BatchStatistics stats = BatchStatistics::kWindow) {
  const auto body = [&](std::int64_t length) {
    return StrCat(R"(node { name: "x" op: "embedding" input: "tokens" input: "table" } )",
                  nodes(length), R"( node { name: "z" op: "first_row" input: "y" } output: "z" )");
  };
  GraphFile graph = ValueOrThrow(
      ParseGraph(StrCat(R"(version: 1 input { name: "tokens" type: I64 size: -1 size: 8 }
      parameter { name: "table" size: 11 size: 6 } )",
                        parameters, " ", body(8), "shorter { length: 4 ", body(4), "}"),
                 "g"));
  return ValueOrThrow(GraphNetwork::Make(std::move(graph), {.stats = stats}, "g"));
}

bool CutsTexts(std::string (*nodes)(std::int64_t length), std::string_view parameters = "",
               BatchStatistics stats = BatchStatistics::kWindow) {
  return OfTexts(nodes, parameters, stats)->ignores_padding();
}

std::string Dropped(std::string_view p, std::string_view from, std::string_view to) {
  return StrCat("node { name: \"", to, "\" op: \"dropout\" input: \"", from,
                "\" attribute { name: \"p\" number: ", p, " } } ");
}

// Attention of three heads, [B, 3, T, T], with dropout of its weights.
std::string Weighted(std::int64_t length, std::string_view p) {
  return StrCat(R"(node { name: "h" op: "view" input: "x" attribute { name: "size" integer: -1
      integer: )",
                length, R"( integer: 3 integer: 2 } }
      node { name: "q" op: "permute" input: "h" attribute { name: "dims" integer: 0 integer: 2
      integer: 1 integer: 3 } }
      node { name: "s" op: "matmul" input: "q" input: "q" attribute { name: "transpose" integer: 1 } }
      )",
                Dropped(p, "s", "d"),
                R"(node { name: "o" op: "matmul" input: "d" input: "q" attribute { name: "transpose"
      integer: 0 } }
      node { name: "t" op: "permute" input: "o" attribute { name: "dims" integer: 0 integer: 2
      integer: 1 integer: 3 } }
      node { name: "y" op: "view" input: "t" attribute { name: "size" integer: -1 integer: )",
                length, " integer: 6 } }");
}

TEST(GraphNetworkTest, CutsNoTextsIfThenAParameterIsNotUsed) {
  const auto nodes = [](std::int64_t length) {
    return std::string(length == 4 ? R"(node { name: "y" op: "relu" input: "x" })"
                                   : R"(node { name: "y" op: "add" input: "x" input: "b" })");
  };
  EXPECT_FALSE(CutsTexts(nodes, R"(parameter { name: "b" size: 6 })"));
}

// Blocks are counted in the graph of whole texts, and stages know the parameters that they read.
TEST(GraphNetworkTest, StagesCutTextsIfTheFunctionsAreTheSame) {
  const auto stage_of = [](std::string (*nodes)(std::int64_t length)) {
    const auto constant = [](int rows) {
      std::string text =
          StrCat("parameter { name: \"constant:", rows, "\" size: ", rows, " size: 6 ");
      for (int i = 0; i < rows * 6; ++i) text += "value: 1 ";
      return StrCat(text, "} ");
    };
    const auto network = OfTexts(
        nodes, StrCat("parameter { name: \"w\" size: 6 size: 6 } ", constant(8), constant(4)));
    SampleSpec sample = network->ExampleSample();
    sample.tensors.push_back({"targets", DType::kF32, {6}});
    sample.cuts = {4};
    Model model = ValueOrThrow(Model::Make(network, LossKind::kMeanSquaredError, sample));
    EXPECT_EQ(model.sample().cuts, sample.cuts);
    const auto blocks = std::ssize(ValueOrThrow(model.BlockFlops()));
    EXPECT_OK(model.SetStage({2, blocks - 2}, 0));
    return model;
  };
  static constexpr std::string_view kLast = R"( node { name: "y" op: "linear" input: "r" input: "w"
      attribute { name: "in_out" integer: 0 } })";
  const Model same = stage_of([](std::int64_t length) {
    return StrCat(R"(node { name: "r" op: "add" input: "x" input: "constant:)", length, "\" }",
                  kLast);
  });
  EXPECT_EQ(same.sample().cuts, std::vector<std::int64_t>{4});
  EXPECT_EQ(same.stage()->uses, (std::vector<bool>{true, false, true, true}));
  const Model other = stage_of([](std::int64_t length) {
    return StrCat(R"(node { name: "a" op: "add" input: "x" input: "constant:)", length, "\" }",
                  R"(node { name: "r" op: ")", length == 4 ? "relu" : "tanh", "\" input: \"a\" }",
                  kLast);
  });
  EXPECT_TRUE(other.sample().cuts.empty());
}

// Every stage computes a mask of inputs and constants, so the model can be cut where it is read
// later. A random one is not computed twice.
TEST(GraphNetworkTest, EndsBlocksBetweenReadersOfAMask) {
  const auto model_with = [](std::string_view op, std::string_view attribute) {
    std::string text = R"(version: 1 input { name: "features" size: -1 size: 6 } )";
    for (const std::string_view w : {"w0", "w1"}) {
      text += StrCat("parameter { name: \"", w, "\" size: 6 size: 6 } ");
    }
    text += StrCat(R"(parameter { name: "constant:0" size: 6 value: 1 value: 2 value: 3 value: 4
        value: 5 value: 6 }
      node { name: "added" op: "add" input: "features" input: "constant:0" }
      node { name: "mask" op: ")",
                   op, R"(" input: "added" attribute { )", attribute, " } }");
    std::string x = "features";
    for (const std::string_view i : {"0", "1"}) {
      text += StrCat("node { name: \"y", i, "\" op: \"linear\" input: \"", x, "\" input: \"w", i,
                     R"(" attribute { name: "in_out" integer: 0 } } node { name: "z)", i,
                     "\" op: \"mul\" input: \"y", i, "\" input: \"mask\" }");
      x = StrCat("z", i);
    }
    auto network = ValueOrThrow(GraphNetwork::Make(
        ValueOrThrow(ParseGraph(StrCat(text, " output: \"z1\""), "g")), NormStatistics{}, "g"));
    return ValueOrThrow(
        Model::Make(std::move(network), LossKind::kSoftmaxCrossEntropy, LabelledSample({6}, 6)));
  };
  Model model = model_with("less", R"(name: "than" number: 2)");
  EXPECT_EQ(ValueOrThrow(model.BlockFlops()).size(), 4U);  // they end at y0, z0, y1
  ASSERT_OK(model.SetStage({2, 2}, 1));
  EXPECT_EQ(model.stage()->uses, (std::vector<bool>{false, true, true}));
  EXPECT_EQ(  // the first one ends at the mask
      ValueOrThrow(model_with("dropout", R"(name: "p" number: 0.5)").BlockFlops()).size(), 2U);
}

TEST(GraphNetworkTest, CutsTextsIfDropoutKeepsPositions) {
  EXPECT_TRUE(CutsTexts([](std::int64_t) { return Dropped("0.1", "x", "y"); }));
  EXPECT_TRUE(CutsTexts([](std::int64_t length) { return Weighted(length, "0.1"); }));
  EXPECT_FALSE(CutsTexts([](std::int64_t length) {  // another number of masks
    return Dropped(length == 4 ? "0.0" : "0.1", "x", "y");
  }));
}

TEST(GraphNetworkTest, DoesNotCutTextsIfBatchNormCountsPadding) {
  const auto norm = [](std::int64_t) -> std::string {
    return R"(node { name: "c" op: "permute" input: "x" attribute { name: "dims" integer: 0 integer: 2
      integer: 1 } }
      node { name: "n" op: "batch_norm" input: "c" input: "w" input: "b" input: "bn.running_mean"
      input: "bn.running_var" input: "bn.num_batches_tracked"
      attribute { name: "eps" number: 1e-05 } attribute { name: "momentum" number: 0.1 } }
      node { name: "y" op: "permute" input: "n" attribute { name: "dims" integer: 0 integer: 2
      integer: 1 } })";
  };
  const std::string_view parameters = R"(parameter { name: "w" size: 6 }
      parameter { name: "b" size: 6 } parameter { name: "bn.running_mean" size: 6 buffer: true }
      parameter { name: "bn.running_var" size: 6 buffer: true }
      parameter { name: "bn.num_batches_tracked" buffer: true })";
  for (const BatchStatistics stats :
       {BatchStatistics::kWindow, BatchStatistics::kGhost, BatchStatistics::kMicro}) {
    EXPECT_FALSE(CutsTexts(norm, parameters, stats));
  }
  EXPECT_TRUE(CutsTexts(norm, parameters, BatchStatistics::kFrozen));
}

TEST(GraphNetworkTest, RefusesOpsThatMixSamples) {
  const auto with_view = [](const std::string& size) {
    return With("op: \"relu\" input: \"y\"",
                StrCat("op: \"view\" input: \"y\" attribute { name: \"size\" ", size, " }"));
  };
  EXPECT_TRUE(ParseStatus(with_view("integer: -1 integer: 4")).ok());
  EXPECT_THAT(ParseStatus(with_view("integer: 4 integer: -1")),
              IsError(ErrorKind::kConfig, "the output: expected [samples, width]"));
  EXPECT_THAT(ParseStatus(with_view("integer: -2 integer: 2")),
              IsError(ErrorKind::kConfig, "the output: expected [samples, width]"));
  EXPECT_THAT(ParseStatus(with_view("integer: -1 integer: 5")),
              IsError(ErrorKind::kConfig, "node 'z': expected as many elements as [-1, 5]"));
  EXPECT_THAT(ParseStatus(With("op: \"relu\" input: \"y\"",
                               "op: \"permute\" input: \"y\" attribute { name: \"dims\" integer: 1 "
                               "integer: 1 }")),
              IsError(ErrorKind::kConfig, "dims: expected a permutation, found [1, 1]"));
  const auto with = [](const std::string& node) { return With("op: \"relu\" input: \"y\"", node); };
  const std::string dim = " attribute { name: \"dim\" integer: 0 }";
  const std::string samples = "no samples";
  EXPECT_THAT(ParseStatus(with(R"(op: "cat" input: "y" input: "y")" + dim)),
              IsError(ErrorKind::kConfig, samples));
  EXPECT_THAT(ParseStatus(with(R"(op: "sum" input: "y" attribute { name: "dims" integer: 0 })"
                               R"( attribute { name: "keepdim" integer: 0 })")),
              IsError(ErrorKind::kConfig, samples));
  EXPECT_THAT(ParseStatus(with(R"(op: "take" input: "y" attribute { name: "start" integer: 0 })"
                               R"( attribute { name: "count" integer: 1 })"
                               R"( attribute { name: "step" integer: 1 })" +
                               dim)),
              IsError(ErrorKind::kConfig, samples));
  EXPECT_THAT(
      ParseStatus(with(R"(op: "pad" input: "y" attribute { name: "before" integer: 1 integer: 0 })"
                       R"( attribute { name: "after" integer: 0 integer: 0 })")),
      IsError(ErrorKind::kConfig, samples));
  EXPECT_THAT(ParseStatus(with(R"(op: "matmul" input: "y" input: "y")"
                               R"( attribute { name: "transpose" integer: 1 })")),
              IsError(ErrorKind::kConfig, "expected matrices for [-1, 4]"));
  EXPECT_THAT(ParseStatus(with(
                  R"(op: "repeat" input: "y" attribute { name: "size" integer: -2 integer: 4 })")),
              IsError(ErrorKind::kConfig, "expected sizes of [-2, 4], or 1"));
  EXPECT_THAT(ParseStatus(with(R"(op: "add" input: "y" input: "features")")),
              IsError(ErrorKind::kConfig, "expected sizes of [-1, 4], or 1"));
}

TEST(GraphNetworkTest, AddsPartsOfTableToRows) {
  const auto add = [](std::string_view table) {
    return ParseStatus(With(R"(node { name: "y" op: "linear" input: "features")",
                            StrCat(R"(parameter { name: "table" )", table, R"( }
node { name: "rows" op: "view" input: "features"
  attribute { name: "size" integer: -1 integer: 2 integer: 3 } }
node { name: "part" op: "slice" input: "table" attribute { name: "dim" integer: 1 }
  attribute { name: "start" integer: 2 } attribute { name: "end" integer: 4 }
  attribute { name: "keepdim" integer: 1 } }
node { name: "sum" op: "add" input: "rows" input: "part" }
node { name: "moved" op: "view" input: "sum" attribute { name: "size" integer: -1 integer: 6 } }
node { name: "y" op: "linear" input: "moved")")));
  };
  EXPECT_TRUE(add("size: 1 size: 5 size: 3").ok()) << add("size: 1 size: 5 size: 3").message();
  EXPECT_THAT(add("size: 1 size: 5 size: 2"), IsError(ErrorKind::kConfig, "node 'sum'"));
}

TEST(GraphNetworkTest, EveryTableLimitsItsInput) {
  auto graph = ParseGraph(R"(version: 1
input { name: "tokens" type: I64 size: -1 size: 1 }
input { name: "user" type: I64 size: -1 size: 1 }
parameter { name: "a" size: 20 size: 4 }
parameter { name: "b" size: 500 size: 4 }
parameter { name: "c" size: 400 size: 4 }
node { name: "x" op: "embedding" input: "tokens" input: "a" }
node { name: "y" op: "embedding" input: "user" input: "b" }
node { name: "z" op: "embedding" input: "user" input: "c" }
node { name: "s" op: "add" input: "x" input: "y" }
node { name: "t" op: "add" input: "s" input: "z" }
output: "t"
)",
                          "g");
  ASSERT_OK(graph.status());
  const auto network = GraphNetwork::Make(*std::move(graph), NormStatistics{}, "g");
  ASSERT_OK(network.status());
  const SampleSpec sample = (*network)->ExampleSample();
  EXPECT_EQ(sample.vocabulary, 20);
  EXPECT_EQ(sample.other_vocabularies.at("user"), 400);
}

// f32 rounds larger ones.
TEST(GraphNetworkTest, IntegersThatBecomeNumbersAreLimited) {
  const auto graph = ParseGraph(R"(version: 1
input { name: "when" type: I64 size: -1 size: 1 }
input { name: "kind" type: I64 size: -1 size: 1 }
parameter { name: "a" size: 1 }
node { name: "x" op: "numbers" input: "when" }
node { name: "y" op: "numbers" input: "kind" }
node { name: "s" op: "add" input: "x" input: "y" }
node { name: "t" op: "mul" input: "s" input: "a" }
output: "t"
)",
                                "g");
  ASSERT_OK(graph.status());
  SampleSpec sample{.tensors = {{"when", DType::kI32, {1}},
                                {"kind", DType::kI32, {1}},
                                {"targets", DType::kF32, {1}}},
                    .other_vocabularies = {{"when", (1 << 24) + 1}, {"kind", 3}}};
  const auto made = [&] {
    auto network = GraphNetwork::Make(*graph, NormStatistics{}, "g");
    return Model::Make(ValueOrThrow(std::move(network)), LossKind::kMeanSquaredError, sample, 0)
        .status();
  };
  EXPECT_OK(made());
  sample.other_vocabularies["when"] = 1'700'000'000;
  EXPECT_THAT(made(), HasMessage(HasSubstr("the integers for 'when' in f32, which has all up to "
                                           "16777216: expected a vocabulary of at most 16777217, "
                                           "found 1700000000")));
}

TEST(GraphNetworkTest, WeightsFileHasNoConstants) {
  const auto model = Model::MakeWithoutData(GoldenSpec("rotary"));
  ASSERT_TRUE(model.ok());
  std::vector<float> values(static_cast<std::size_t>(model->layout().size()), 9);
  model->Initialize(3, values);
  int constants = 0;
  for (const FlatEntry& entry : model->layout().entries()) {
    if (!IsConstant(entry.name)) continue;
    ++constants;
    EXPECT_TRUE(entry.frozen && entry.buffer) << entry.name;
    const auto found = std::span(values).subspan(static_cast<std::size_t>(entry.offset),
                                                 static_cast<std::size_t>(entry.elements));
    EXPECT_LE(std::ranges::max(found), 1.0F) << entry.name;  // what the graph says
  }
  EXPECT_EQ(constants, 3);  // cos, sin, the window
  EXPECT_EQ(CountByFunction("rotary").at("batched_product"), 4);
  EXPECT_EQ(CountByFunction("excite").at("conv2d_input_gradient"), 1);
}

}  // namespace
}  // namespace gaccd
