#include "daemon/replica/model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "daemon/ops/loss/token_cross_entropy.h"
#include "tests/support/model_bench.h"
#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

SampleSpec Images(std::int64_t classes) { return LabelledSample({28, 28}, classes); }

Status Refused(const ModelSpec& spec, const SampleSpec& sample) {
  const auto model = Model::Make(spec, sample);
  EXPECT_FALSE(model.ok());
  return model.ok() ? Status::Ok() : model.status();
}

TEST(ModelTest, HasNamesAndShapesOfPyTorch) {
  ModelSpec spec = Mlp({784, 512, 512, 10}, LossKind::kSoftmaxCrossEntropy);
  spec.layer.insert(spec.layer.begin(), {"flatten", FlattenSpec{}});
  const auto model = ValueOrThrow(Model::Make(spec, Images(10)));
  EXPECT_EQ(model.Describe(), "784-512-512-10");
  const auto entries = model.layout().entries();
  ASSERT_EQ(entries.size(), 6u);
  EXPECT_EQ(entries[0].name, "fc1.weight");
  EXPECT_EQ(entries[0].shape, (Shape{512, 784}));
  EXPECT_EQ(entries[5].name, "fc3.bias");
  EXPECT_EQ(entries[5].shape, (Shape{10}));
  EXPECT_EQ(model.layout().parameters(), 784 * 512 + 512 + 512 * 512 + 512 + 512 * 10 + 10);
}

// Biases and layer norms of every architecture alike.
TEST(ModelTest, WeightDecayAppliesToTwoDimensions) {
  const ModelSpec models[] = {
      {.layer = {{"words", EmbeddingSpec{7, 6}},
                 {"norm", LayerNormSpec{.width = 6}},
                 {"fc", LinearSpec{6, 3, true}}},
       .loss = SoftmaxCrossEntropySpec{}},
      {.loss = SoftmaxCrossEntropySpec{},
       .architecture =
           BertSpec{.vocabulary = 9, .context = 4, .layers = 1, .heads = 1, .width = 8}},
      {.loss = SoftmaxCrossEntropySpec{},
       .architecture =
           GptSpec{.vocabulary = 9, .context = 4, .layers = 1, .heads = 1, .width = 8}}};
  for (const ModelSpec& spec : models) {
    const auto model = ValueOrThrow(Model::MakeWithoutData(spec));
    for (const FlatEntry& entry : model.layout().entries()) {
      EXPECT_EQ(entry.group, entry.shape.size() > 1 ? OptimizerGroup{} : kNoDecay) << entry.name;
    }
  }
}

TEST(ModelTest, RefusalsNameJobField) {
  SampleSpec text = TokenSample(5, 9);
  text.tensors.push_back({"labels", DType::kI32, {5}});
  text.classes = 9;
  GptSpec gpt{.vocabulary = 9, .context = 4, .layers = 1, .heads = 1, .width = 8};
  const auto of_gpt = [&] {
    return Refused({.loss = SoftmaxCrossEntropySpec{}, .architecture = gpt}, text);
  };
  EXPECT_THAT(of_gpt(), HasMessage(HasSubstr("of 5 tokens, the model a context of 4: raise "
                                             "model.gpt.context")));
  gpt.vocabulary = 8;
  EXPECT_THAT(of_gpt(), HasMessage(HasSubstr("the data one of 9: raise model.gpt.vocabulary")));
  text.tensors.back().shape = {};
  text.classes = 3;
  BertSpec bert{.vocabulary = 9, .context = 4, .layers = 1, .heads = 1, .width = 8};
  const auto of_bert = [&] {
    return Refused({.loss = SoftmaxCrossEntropySpec{}, .architecture = bert}, text);
  };
  EXPECT_THAT(of_bert(), HasMessage(HasSubstr("raise model.bert.context")));
  bert.context = 5;
  EXPECT_THAT(of_bert(),
              HasMessage(HasSubstr("the data has 3 classes, and the model gives [2] for "
                                   "a sample: expected [3]; set model.bert.classes to 3")));
}

// Each array has its own vocabulary, and its own table.
TEST(ModelTest, ChecksVocabularyOfEveryTable) {
  const auto tower = [](const char* input, std::int64_t rows, std::int64_t ids) {
    return TowerSpec{input,
                     {{"id", EmbeddingSpec{rows, 3}},
                      {"flatten", FlattenSpec{}},
                      {"fc", LinearSpec{3 * ids, 5, true}}}};
  };
  const ModelSpec spec{.loss = ContrastiveSpec{},
                       .architecture = DualEncoderSpec{
                           .a = tower("tokens", 20, 6), .b = tower("user", 500, 1), .width = 4}};
  SampleSpec sample{.tensors = {{"tokens", DType::kI32, {6}}, {"user", DType::kI32, {1}}},
                    .vocabulary = 20,
                    .other_vocabularies = {{"user", 500}}};
  EXPECT_OK(Model::Make(spec, sample).status());
  sample.other_vocabularies["user"] = 501;
  EXPECT_THAT(Refused(spec, sample),
              HasMessage(HasSubstr("a vocabulary of 500 for 'user', the data one of 501")));
  sample.other_vocabularies["user"] = 20;
  sample.vocabulary = 21;
  EXPECT_THAT(Refused(spec, sample),
              HasMessage(HasSubstr("a vocabulary of 20, the data one of 21")));
}

// As nn.Embedding, nn.Flatten and nn.Linear.
TEST(ModelTest, FlattenMakesOneRowPerSample) {
  ModelSpec spec{.layer = {{"words", EmbeddingSpec{11, 3}},
                           {"flatten", FlattenSpec{}},
                           {"fc", LinearSpec{15, 4, true}}},
                 .loss = SoftmaxCrossEntropySpec{}};
  SampleSpec sample{.tensors = {{"tokens", DType::kI32, {5}}, {"labels", DType::kI32, {}}},
                    .classes = 4,
                    .vocabulary = 11};
  const auto model = ValueOrThrow(Model::Make(spec, sample));
  EXPECT_EQ(model.predictions(), 1);
  EXPECT_TRUE(model.RecordTraining({3}).ok());
  EXPECT_TRUE(Model::MakeWithoutData(spec).ok()) << "5 tokens follow from the layers";
  sample.tensors[0].shape = {6};
  EXPECT_THAT(Refused(spec, sample), HasMessage(AllOf(HasSubstr("is 15"), HasSubstr("[18]"))));

  spec.layer.erase(spec.layer.begin() + 1);
  EXPECT_THAT(Refused(spec, sample),
              HasMessage(AllOf(HasSubstr("each of 6 tokens"), HasSubstr("flatten"))));
}

ModelSpec SmallConvNet() {
  return {.layer = {{"image", UnflattenSpec{1, 28, 28}},
                    {"conv1", Conv2dSpec{.in_channels = 1, .out_channels = 6, .kernel_size = {5}}},
                    {"norm1", GroupNormSpec{.num_groups = 2, .num_channels = 6}},
                    {"act1", HardswishSpec{}},
                    {"pool1", MaxPool2dSpec{.kernel_size = {2}}},
                    {"conv2", Conv2dSpec{.in_channels = 6,
                                         .out_channels = 8,
                                         .kernel_size = {3, 5},
                                         .stride = {2, 1},
                                         .padding = {1, 2},
                                         .groups = 2,
                                         .bias = false}},
                    {"act2", LeakyReluSpec{}},
                    {"pool2", AvgPool2dSpec{.kernel_size = {2}, .stride = {2}}},
                    {"drop", DropoutSpec{.p = 0.25}},
                    {"flatten", FlattenSpec{}},
                    {"fc", LinearSpec{8 * 3 * 6, 10, true}}},
          .loss = SoftmaxCrossEntropySpec{}};
}

TEST(ModelTest, ConvolutionsOfImages) {
  const ModelSpec spec = SmallConvNet();
  const auto model = Model::Make(spec, Images(10));
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_EQ(model->Describe(), "1-6-8-10");
  const std::pair<const char*, Shape> expected[] = {{"conv1.weight", {6, 1, 5, 5}},
                                                    {"conv1.bias", {6}},
                                                    {"norm1.weight", {6}},
                                                    {"norm1.bias", {6}},
                                                    {"conv2.weight", {8, 3, 3, 5}},
                                                    {"fc.weight", {10, 144}},
                                                    {"fc.bias", {10}}};
  const auto entries = model->layout().entries();
  ASSERT_EQ(entries.size(), std::size(expected));
  for (std::size_t i = 0; i < entries.size(); ++i) {
    EXPECT_EQ(entries[i].name, expected[i].first);
    EXPECT_EQ(entries[i].shape, expected[i].second);
    EXPECT_EQ(entries[i].group, entries[i].shape.size() > 1 ? OptimizerGroup{} : kNoDecay);
  }
  // As nn.Conv2d: uniform in +-1/sqrt(in / groups KH KW).
  std::vector<float> values(static_cast<std::size_t>(model->layout().size()));
  model->Initialize(1, values);
  const FlatEntry& conv2 = entries[4];
  double largest = 0;
  for (std::int64_t i = 0; i < conv2.elements; ++i) {
    const float value = values[static_cast<std::size_t>(conv2.offset + i)];
    largest = std::max(largest, static_cast<double>(std::abs(value)));
  }
  EXPECT_LE(largest, 1 / std::sqrt(45.0));
  EXPECT_GT(largest, 0.95 / std::sqrt(45.0));
  EXPECT_TRUE(model->RecordTraining({3}).ok());
  EXPECT_TRUE(Model::MakeWithoutData(spec).ok());
  EXPECT_EQ(model->FlopsPerSample(),
            2.0 * (2 * 24 * 24 * 6 * 25 + 3 * 6 * 12 * 8 * 3 * 15 + 3 * 144 * 10));
}

TEST(ModelTest, ConvolutionsWithoutDataUseSmallestImages) {
  ModelSpec spec = SmallConvNet();
  spec.layer.erase(spec.layer.begin());
  const auto model = Model::MakeWithoutData(spec);
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_EQ(model->sample().tensors[0].shape, (Shape{1, 28, 28}));
}

TEST(ModelTest, ImageRefusalsNameLayerAndBothShapes) {
  ModelSpec spec = SmallConvNet();
  EXPECT_THAT(Refused(spec, LabelledSample({27, 28}, 10)),
              HasMessage(AllOf(HasSubstr("image"), HasSubstr("expected 784 values a sample, for "
                                                             "[1, 28, 28], found [27, 28]"))));
  std::get<GroupNormSpec>(spec.layer[2].kind).num_channels = 4;
  EXPECT_THAT(Refused(spec, Images(10)),
              HasMessage(AllOf(HasSubstr("norm1"), HasSubstr("num_channels is 4"),
                               HasSubstr("[6, 24, 24]"))));
  std::get<Conv2dSpec>(spec.layer[1].kind).in_channels = 3;
  EXPECT_THAT(Refused(spec, Images(10)),
              HasMessage(AllOf(HasSubstr("conv1"), HasSubstr("in_channels is 3"),
                               HasSubstr("[1, 28, 28]"))));
  std::get<Conv2dSpec>(spec.layer[1].kind).groups = 2;
  EXPECT_THAT(Refused(spec, Images(10)), HasMessage(HasSubstr("a divisor of in_channels, 3")));
  spec.layer.erase(spec.layer.begin());
  EXPECT_THAT(Refused(spec, Images(10)),
              HasMessage(AllOf(HasSubstr("conv1"), HasSubstr("found [28, 28]"),
                               HasSubstr("unflatten layer"))));
  spec = SmallConvNet();
  std::get<LinearSpec>(spec.layer.back().kind).in = 100;
  EXPECT_THAT(Refused(spec, Images(10)), HasMessage(HasSubstr("is 100")));
  spec.layer.erase(spec.layer.end() - 2);
  EXPECT_THAT(Refused(spec, Images(10)),
              HasMessage(AllOf(HasSubstr("[8, 3, 6]"), HasSubstr("flatten"))));
}

// 2 m n k a product: one forward, two backward, but no gradient of the data.
TEST(ModelTest, CountsProductFlops) {
  auto mlp =
      Model::Make(Mlp({784, 512, 10}, LossKind::kSoftmaxCrossEntropy), LabelledSample({784}, 10));
  ASSERT_TRUE(mlp.ok());
  const double first = 2.0 * 784 * 512;
  const double second = 2.0 * 512 * 10;
  EXPECT_EQ(mlp->FlopsPerSample(), 2 * first + 3 * second);
  OptimizerSpec optimizer;
  optimizer.group = {{.match = "fc1.*", .freeze = true}};
  ASSERT_TRUE(mlp->ApplyRules(optimizer).ok());
  EXPECT_EQ(mlp->FlopsPerSample(), first + 2 * second);

  // The usual 6 N + 12 L C T a token, where N leaves out biases, norms and positions.
  constexpr std::int64_t kLength = 10;
  const auto gpt = ValueOrThrow(Model::MakeWithoutData(
      {.loss = SoftmaxCrossEntropySpec{},
       .architecture =
           GptSpec{.vocabulary = 13, .context = kLength, .layers = 2, .heads = 2, .width = 16}}));
  const double parameters = 2 * 12 * 16 * 16 + 13 * 16;
  EXPECT_EQ(gpt.FlopsPerSample(), kLength * (6 * parameters + 12 * 2 * 16 * kLength));
  // Again: the products of a block with 3, 1 and 4 times its width, and the two of its attention;
  // not the last one, whose output is the input of the next block.
  EXPECT_EQ(gpt.RecomputedFlopsPerSample(),
            2 * kLength * (2 * (3 + 1 + 4) * 16 * 16 + 4 * 16 * kLength));
  EXPECT_TRUE(gpt.has_blocks());
  EXPECT_EQ(mlp->RecomputedFlopsPerSample(), 0) << "what its one block makes is kept";
}

TEST(ModelTest, StageCountsItsOwnProducts) {
  Model model = ValueOrThrow(
      Model::Make(Mlp({8, 7, 6, 4}, LossKind::kSoftmaxCrossEntropy), LabelledSample({8}, 4)));
  const double whole = model.FlopsPerSample();
  double sum = 0;
  for (const std::size_t stage : {0, 1}) {
    ASSERT_OK(model.SetStage({2, std::ssize(ValueOrThrow(model.BlockFlops())) - 2}, stage));
    EXPECT_LT(model.FlopsPerSample(), whole);
    EXPECT_EQ(model.WithAllStages().FlopsPerSample(), whole);
    sum += model.FlopsPerSample();
  }
  EXPECT_EQ(sum, whole);
}

// A stage whose blocks are frozen has no gradient to receive.
TEST(ModelTest, FirstStageNeedsSomethingToTrain) {
  for (const auto& [frozen, least] :
       {std::pair("none", 1), std::pair("fc1.*", 2), std::pair("fc[12].*", 3)}) {
    Model model = ValueOrThrow(
        Model::Make(Mlp({8, 7, 6, 5, 4}, LossKind::kSoftmaxCrossEntropy), LabelledSample({8}, 4)));
    OptimizerSpec optimizer;
    if (least > 1) optimizer.group = {{.match = frozen, .freeze = true}};
    ASSERT_OK(model.ApplyRules(optimizer));
    const auto blocks = std::ssize(ValueOrThrow(model.BlockFlops()));
    const std::int64_t needed = ValueOrThrow(model.LeastFirstBlocks());
    EXPECT_GE(needed, least) << frozen;
    EXPECT_LT(needed, blocks) << frozen;
    for (std::int64_t first = 1; first < blocks; ++first) {
      Model stage = model;
      EXPECT_EQ(stage.SetStage({first, blocks - first}, 0).ok(), first >= needed)
          << frozen << " " << first;
    }
  }
}

TEST(ModelTest, RefusalsNameLayerAndBothShapes) {
  // The images are not flattened.
  Status status = Refused(Mlp({784, 10}, LossKind::kSoftmaxCrossEntropy), Images(10));
  EXPECT_THAT(status, IsError(ErrorKind::kConfig, "layer 'fc1'", "[28, 28]: put a flatten layer"));

  // Layers that do not fit each other.
  ModelSpec spec = Mlp({784, 512, 10}, LossKind::kSoftmaxCrossEntropy);
  spec.layer[2].kind = LinearSpec{500, 10, true};
  status = Refused(spec, LabelledSample({784}, 10));
  EXPECT_THAT(status, IsError(ErrorKind::kConfig, "layer 'fc2'", "linear.in is 500", "[512]"));

  // Data of another width.
  status = Refused(Mlp({784, 10}, LossKind::kSoftmaxCrossEntropy), LabelledSample({783}, 10));
  EXPECT_THAT(status, HasMessage(AllOf(HasSubstr("784"), HasSubstr("[783]"))));

  // Two layers of one name.
  spec = Mlp({784, 512, 10}, LossKind::kSoftmaxCrossEntropy);
  spec.layer[2].name = "fc1";
  status = Refused(spec, LabelledSample({784}, 10));
  EXPECT_THAT(status, HasMessage(HasSubstr("'fc1.weight' appears twice")));
}

TEST(ModelTest, RefusesLossThatDoesNotFitData) {
  const SampleSpec labels = LabelledSample({10}, 3);
  const SampleSpec vectors = TargetSample({10}, 2);
  Status status = Refused(Mlp({10, 3}, LossKind::kMeanSquaredError), labels);
  EXPECT_THAT(status, IsError(ErrorKind::kConfig, "mean_squared_error", "3 classes"));
  status = Refused(Mlp({10, 3}, LossKind::kSoftmaxCrossEntropy), vectors);
  EXPECT_THAT(status,
              HasMessage(AllOf(HasSubstr("softmax_cross_entropy"), HasSubstr("targets f32 [2]"))));
  // More or fewer outputs than classes or targets: a smaller one would be trained wrongly.
  status = Refused(Mlp({10, 4}, LossKind::kSoftmaxCrossEntropy), labels);
  EXPECT_THAT(status, HasMessage(AllOf(HasSubstr("the data has 3 classes, and the model gives [4]"),
                                       HasSubstr("set the outputs of the last layer to 3"))));
  status = Refused(Mlp({10, 3}, LossKind::kMeanSquaredError), vectors);
  EXPECT_THAT(status, HasMessage(HasSubstr("2 values per target, and the model gives [3]")));
  status = Refused(Mlp({10, 3}, LossKind::kMeanSquaredError), TargetSample({10}, 1));
  EXPECT_THAT(status, HasMessage(HasSubstr("1 value per target, and the model gives [3]")));
}

TEST(ModelTest, RefusesOutputsThatAreNoLosses) {
  const auto output_loss = [](const std::vector<std::int64_t>& widths) {
    ModelSpec spec = Mlp(widths, LossKind::kMeanSquaredError);
    spec.loss = OutputLossSpec{};
    return spec;
  };
  EXPECT_THAT(Refused(output_loss({10, 3}), LabelledSample({10}, 3)),
              IsError(ErrorKind::kConfig,
                      "the model gives [1, 3] for 1 sample: expected [1, 1] or [1, 2]"));
  // The loss would not depend on them.
  EXPECT_THAT(Refused(output_loss({10, 1}), TargetSample({10}, 2)),
              IsError(ErrorKind::kConfig, "expected an input 'targets' of forward()"));
  SampleSpec weighted = LabelledSample({10}, 3);
  weighted.tensors.push_back({"weights", DType::kF32, {}});
  EXPECT_THAT(Refused(output_loss({10, 1}), weighted),
              IsError(ErrorKind::kConfig, "expected an input 'weights' of forward()"));
  EXPECT_TRUE(Model::MakeWithoutData(output_loss({10, 1})).ok());
}

TEST(ModelTest, SmoothsLabelsInTrainingOnly) {
  ModelSpec spec = Mlp({10, 3}, LossKind::kSoftmaxCrossEntropy);
  spec.loss = SoftmaxCrossEntropySpec{.label_smoothing = 0.25};
  const auto model = ValueOrThrow(Model::Make(spec, LabelledSample({10}, 3)));
  EXPECT_EQ(model.divisor_unit(), "samples");
  const auto training = model.RecordTraining({2});
  const auto evaluation = model.RecordEvaluation({2});
  ASSERT_TRUE(training.ok() && evaluation.ok());
  const auto smoothing = [](const Graph& graph) {
    std::vector<float> found;
    for (const Node& node : graph.nodes()) {
      const auto* loss = dynamic_cast<const TokenCrossEntropy*>(node.function.get());
      if (loss != nullptr) found.push_back(loss->options().label_smoothing);
    }
    return found;
  };
  EXPECT_THAT(smoothing(training->graph), testing::ElementsAre(0.25F));
  EXPECT_THAT(smoothing(evaluation->graph), testing::ElementsAre(0.0F));
}

TEST(ModelTest, SampleWeightsAreTheDivisor) {
  SampleSpec sample = LabelledSample({10}, 3);
  sample.tensors.push_back({"weights", DType::kF32, {}});
  const auto model =
      ValueOrThrow(Model::Make(Mlp({10, 3}, LossKind::kSoftmaxCrossEntropy), sample));
  EXPECT_EQ(model.divisor_unit(), "weights");
  EXPECT_EQ(model.divisor_unit(/*weighted=*/false), "samples");
  sample = TargetSample({10}, 3);
  sample.tensors.push_back({"weights", DType::kF32, {}});
  EXPECT_THAT(Refused(Mlp({10, 3}, LossKind::kMeanSquaredError), sample),
              HasMessage("mean_squared_error does not support weights"));
}

TEST(ModelTest, RefusesModelsWithoutParametersAndTooLarge) {
  const SampleSpec vectors = TargetSample({2}, 2);
  Status status = Refused({.layer = {}, .loss = MeanSquaredErrorSpec{}}, vectors);
  EXPECT_THAT(status, IsError(ErrorKind::kConfig, "depends on no parameter"));

  constexpr std::int64_t kHuge = std::int64_t{1} << 40;
  status = Refused(Mlp({kHuge, kHuge}, LossKind::kMeanSquaredError), TargetSample({kHuge}, kHuge));
  EXPECT_THAT(status, IsError(ErrorKind::kConfig, "fc1.weight", "2^48 bytes"));

  ModelSpec flat = Mlp({4, 2}, LossKind::kMeanSquaredError);
  flat.layer.insert(flat.layer.begin(), {"flatten", FlattenSpec{}});
  status = Refused(flat, TargetSample({kHuge, kHuge}, 2));
  EXPECT_THAT(status, IsError(ErrorKind::kConfig, "features", "2^48 bytes"));
}

TEST(ModelTest, RefusesTooLargeMicroBatch) {
  const Model model = MakeMlp({784, 10});
  EXPECT_THAT(model.RecordTraining({std::int64_t{1} << 45}), HasKind(ErrorKind::kConfig));
}

TEST(ModelTest, InitialWeightsDependOnSeedInRangeOfPyTorch) {
  const Model model = MakeMlp({784, 512, 10});
  const auto elements = static_cast<std::size_t>(model.layout().size());
  std::vector<float> first(elements);
  std::vector<float> again(elements);
  std::vector<float> other(elements);
  model.Initialize(7, first);
  model.Initialize(7, again);
  model.Initialize(8, other);
  EXPECT_EQ(first, again);
  EXPECT_NE(first, other);
  for (const FlatEntry& entry : model.layout().entries()) {
    const auto part = std::span<const float>(first).subspan(
        static_cast<std::size_t>(entry.offset), static_cast<std::size_t>(entry.elements));
    const bool is_first = entry.name.starts_with("fc1");
    const double limit = 1 / std::sqrt(is_first ? 784.0 : 512.0);
    const auto [low, high] = std::minmax_element(part.begin(), part.end());
    EXPECT_GE(*low, -limit) << entry.name;
    EXPECT_LE(*high, limit) << entry.name;
    if (entry.elements < 5000) continue;  // enough for statistics
    double sum = 0;
    double squares = 0;
    for (const float p : part) {
      sum += static_cast<double>(p);
      squares += static_cast<double>(p) * static_cast<double>(p);
    }
    const auto n = static_cast<double>(part.size());
    // Uniform: mean 0, variance limit^2 / 3. Five standard errors.
    EXPECT_LT(std::abs(sum / n), 5 * limit / std::sqrt(3 * n)) << entry.name;
    EXPECT_NEAR(squares / n, limit * limit / 3, 5 * limit * limit * 0.3 / std::sqrt(n));
  }
  // Two layers of one shape do not start equal, and the padding stays zero.
  EXPECT_NE(first[0], first[static_cast<std::size_t>(model.layout().Find("fc2.weight")->offset)]);
  const FlatEntry& last = model.layout().entries().back();
  for (auto i = static_cast<std::size_t>(last.offset + last.elements); i < elements; ++i) {
    EXPECT_EQ(first[i], 0);
  }
}

}  // namespace
}  // namespace gaccd
