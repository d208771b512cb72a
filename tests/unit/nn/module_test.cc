#include "daemon/nn/module.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "daemon/nn/linear.h"
#include "daemon/replica/prepared_graphs.h"
#include "daemon/tensor/random.h"
#include "tests/support/status_matchers.h"

namespace gaccd::nn {
namespace {

// Two linear layers, the second inside a block of its own.
class Pair : public Module {
 public:
  explicit Pair(const Scope& scope)
      : Module(scope),
        first_(scope / "first", {.in = 3, .out = 4}),
        second_(scope / "block" / 7 / "second", {.in = 4, .out = 2, .bias = false}) {}
  ValueId operator()(Recorder& recorder, ValueId x) const {
    return second_(recorder, first_(recorder, x));
  }

 private:
  Linear first_;
  Linear second_;
};

TEST(ModuleTest, JoinsNestedNamesWithDots) {
  ParameterList list;
  const Pair pair(Scope(list) / "pair");
  std::vector<std::string> names;
  for (const ParameterSpec& spec : list.specs()) names.push_back(spec.name);
  EXPECT_THAT(names, testing::ElementsAre("pair.first.weight", "pair.first.bias",
                                          "pair.block.7.second.weight"));
}

TEST(ModuleTest, TiedParameterIsOneGraphValue) {
  ParameterList list;
  const Pair pair{Scope(list)};
  Graph graph;
  const SampleSpec sample = TargetSample({3}, 2);
  Recorder recorder(graph, list, sample, {.samples = 5});
  EXPECT_EQ(recorder.Parameter(1), recorder.Parameter(1));
  EXPECT_NE(recorder.Parameter(1), recorder.Parameter(2));
  const ValueId features = recorder.Input("features");
  EXPECT_EQ(recorder.Input("features"), features);
  EXPECT_EQ(recorder.shape(pair(recorder, features)), (Shape{5, 2}));
  EXPECT_TRUE(recorder.status().ok());
}

TEST(ModuleTest, KeepsFirstRefusalAndNamesModule) {
  ParameterList list;
  const Pair pair(Scope(list) / "pair");
  Graph graph;
  const SampleSpec sample = TargetSample({9}, 2);
  Recorder recorder(graph, list, sample, {.samples = 5});
  EXPECT_EQ(pair(recorder, recorder.Input("features")), kNoValue);
  EXPECT_EQ(recorder.Input("tokens"), kNoValue);
  EXPECT_THAT(recorder, IsError(ErrorKind::kConfig, "'pair.first'", "[9]"));
  EXPECT_TRUE(graph.nodes().empty());

  Recorder other(graph, list, sample, {});
  EXPECT_EQ(other.Input("tokens"), kNoValue);
  EXPECT_THAT(other, HasMessage(HasSubstr("'tokens'")));
}

TEST(ModuleTest, BindsInputsByName) {
  using From = BoundInput::From;
  const ParameterList none;
  Graph graph;
  const SampleSpec sample{
      .tensors = {{"labels", DType::kI32, {}}, {"tokens", DType::kI32, {7}}, {"mask"}}};
  Recorder recorder(graph, none, sample, {.samples = 5});
  const ValueId tokens = recorder.Input("tokens");
  const ValueId ids = recorder.Input(kSampleIds);
  const ValueId update = recorder.Input(kUpdate);
  const ValueId position = recorder.Input(kPosition);
  EXPECT_EQ(recorder.Input("tokens"), tokens);
  EXPECT_EQ(graph.value(position).spec, (ValueSpec{{1}, DType::kI64}));
  EXPECT_EQ(graph.value(tokens).spec, (ValueSpec{{5, 7}, DType::kI32}));
  EXPECT_EQ(graph.value(ids).spec, (ValueSpec{{5}, DType::kI64}));
  EXPECT_EQ(graph.value(update).spec, (ValueSpec{{1}, DType::kI64}));

  const auto bound = ValueOrThrow(BindByName(recorder.inputs(), sample));
  ASSERT_EQ(bound.size(), 4U);
  EXPECT_TRUE(bound[0].value == tokens && bound[0].from == From::kTensor);
  EXPECT_EQ(bound[0].tensor, 1U);
  EXPECT_TRUE(bound[1].value == ids && bound[1].from == From::kSampleIds);
  EXPECT_TRUE(bound[2].value == update && bound[2].from == From::kUpdate);
  EXPECT_TRUE(bound[3].value == position && bound[3].from == From::kPosition);

  EXPECT_THAT(BindByName(recorder.inputs(), {.tensors = {{"labels", DType::kI32, {}}}}),
              HasMessage(HasSubstr("'tokens'")));
}

TEST(InitializeTest, IsAFunctionOfSeedAndParameter) {
  std::vector<float> values(20'000);
  Initialize(Uniform(0.25), 7, 3, values);
  const std::uint64_t key = StreamKey(7, 3);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double unit = static_cast<double>(StreamValue(key, i) >> 40) * 0x1p-24;
    ASSERT_EQ(values[i], static_cast<float>((2 * unit - 1) * 0.25));
  }
  Initialize(Constant(1), 7, 3, values);
  EXPECT_EQ(values[19'999], 1);

  Initialize(Normal(0.02), 7, 3, values);
  double sum = 0;
  double squares = 0;
  for (const float value : values) {
    sum += double{value};
    squares += double{value} * double{value};
  }
  const auto count = static_cast<double>(values.size());
  EXPECT_LT(std::abs(sum / count), 5 * 0.02 / std::sqrt(count));
  EXPECT_NEAR(std::sqrt(squares / count), 0.02, 5 * 0.02 / std::sqrt(2 * count));
}

}  // namespace
}  // namespace gaccd::nn
