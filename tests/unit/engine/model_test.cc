#include "daemon/model/model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "daemon/ops/token_cross_entropy.h"
#include "tests/unit/base/status_matchers.h"
#include "tests/unit/engine/model_bench.h"

namespace gaccd {
namespace {

using testing::AllOf;
using testing::HasSubstr;

SampleSpec Images(std::int64_t classes) { return LabelledSample({28, 28}, classes); }

Status Refused(const ModelSpec& spec, const SampleSpec& sample) {
  const auto model = Model::Make(spec, sample);
  EXPECT_FALSE(model.ok());
  return model.ok() ? Status::Ok() : model.status();
}

TEST(ModelTest, HasTheNamesAndShapesOfPyTorch) {
  ModelSpec spec = Mlp({784, 512, 512, 10}, LossKind::kSoftmaxCrossEntropy);
  spec.layer.insert(spec.layer.begin(), {"flatten", FlattenSpec{}});
  const auto model = Model::Make(spec, Images(10));
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_EQ(model->Describe(), "784-512-512-10");
  const auto entries = model->layout().entries();
  ASSERT_EQ(entries.size(), 6u);
  EXPECT_EQ(entries[0].name, "fc1.weight");
  EXPECT_EQ(entries[0].shape, (Shape{512, 784}));
  EXPECT_EQ(entries[5].name, "fc3.bias");
  EXPECT_EQ(entries[5].shape, (Shape{10}));
  EXPECT_EQ(model->layout().parameters(), 784 * 512 + 512 + 512 * 512 + 512 + 512 * 10 + 10);
}

// Biases and layer norms of every architecture alike.
TEST(ModelTest, WeightDecayIsForParametersOfTwoDimensions) {
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
    const auto model = Model::MakeWithoutData(spec);
    ASSERT_TRUE(model.ok()) << model.status().message();
    for (const FlatEntry& entry : model->layout().entries()) {
      EXPECT_EQ(entry.group, entry.shape.size() > 1 ? OptimizerGroup{} : kNoDecay) << entry.name;
    }
  }
}

// As nn.Embedding, nn.Flatten and nn.Linear.
TEST(ModelTest, FlattenMakesOneRowOfAllTokensOfASample) {
  ModelSpec spec{.layer = {{"words", EmbeddingSpec{11, 3}},
                           {"flatten", FlattenSpec{}},
                           {"fc", LinearSpec{15, 4, true}}},
                 .loss = SoftmaxCrossEntropySpec{}};
  SampleSpec sample{.tensors = {{"tokens", DType::kI32, {5}}, {"labels", DType::kI32, {}}},
                    .classes = 4,
                    .vocabulary = 11};
  const auto model = Model::Make(spec, sample);
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_EQ(model->predictions(), 1);
  EXPECT_TRUE(model->RecordTraining({3}).ok());
  EXPECT_TRUE(Model::MakeWithoutData(spec).ok()) << "5 tokens follow from the layers";
  sample.tensors[0].shape = {6};
  EXPECT_THAT(Refused(spec, sample), HasMessage(AllOf(HasSubstr("is 15"), HasSubstr("[18]"))));

  spec.layer.erase(spec.layer.begin() + 1);
  EXPECT_THAT(Refused(spec, sample),
              HasMessage(AllOf(HasSubstr("each of 6 tokens"), HasSubstr("flatten"))));
}

// 2 m n k a product: one forward, two backward, but no gradient of the data.
TEST(ModelTest, CountsTheOperationsOfItsProducts) {
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
  const auto gpt = Model::MakeWithoutData(
      {.loss = SoftmaxCrossEntropySpec{},
       .architecture =
           GptSpec{.vocabulary = 13, .context = kLength, .layers = 2, .heads = 2, .width = 16}});
  ASSERT_TRUE(gpt.ok());
  const double parameters = 2 * 12 * 16 * 16 + 13 * 16;
  EXPECT_EQ(gpt->FlopsPerSample(), kLength * (6 * parameters + 12 * 2 * 16 * kLength));
}

TEST(ModelTest, RefusalsNameTheLayerAndBothShapes) {
  // The images are not flattened.
  Status status = Refused(Mlp({784, 10}, LossKind::kSoftmaxCrossEntropy), Images(10));
  EXPECT_THAT(status, HasKind(ErrorKind::kConfig));
  EXPECT_THAT(status, HasMessage(AllOf(HasSubstr("layer 'fc1'"),
                                       HasSubstr("[28, 28]: put a flatten layer"))));

  // Layers that do not fit each other.
  ModelSpec spec = Mlp({784, 512, 10}, LossKind::kSoftmaxCrossEntropy);
  spec.layer[2].kind = LinearSpec{500, 10, true};
  status = Refused(spec, LabelledSample({784}, 10));
  EXPECT_THAT(status, HasKind(ErrorKind::kConfig));
  EXPECT_THAT(status, HasMessage(AllOf(HasSubstr("layer 'fc2'"), HasSubstr("linear.in is 500"),
                                       HasSubstr("[512]"))));

  // Data of another width.
  status = Refused(Mlp({784, 10}, LossKind::kSoftmaxCrossEntropy), LabelledSample({783}, 10));
  EXPECT_THAT(status, HasMessage(AllOf(HasSubstr("784"), HasSubstr("[783]"))));

  // Two layers of one name.
  spec = Mlp({784, 512, 10}, LossKind::kSoftmaxCrossEntropy);
  spec.layer[2].name = "fc1";
  status = Refused(spec, LabelledSample({784}, 10));
  EXPECT_THAT(status, HasMessage(HasSubstr("'fc1.weight' appears twice")));
}

TEST(ModelTest, RefusesALossThatDoesNotFitTheData) {
  const SampleSpec labels = LabelledSample({10}, 3);
  const SampleSpec vectors = TargetSample({10}, 2);
  Status status = Refused(Mlp({10, 3}, LossKind::kMeanSquaredError), labels);
  EXPECT_THAT(status, HasKind(ErrorKind::kConfig));
  EXPECT_THAT(status, HasMessage(AllOf(HasSubstr("mean_squared_error"), HasSubstr("3 classes"))));
  status = Refused(Mlp({10, 3}, LossKind::kSoftmaxCrossEntropy), vectors);
  EXPECT_THAT(status,
              HasMessage(AllOf(HasSubstr("softmax_cross_entropy"), HasSubstr("targets f32 [2]"))));
  // More or fewer outputs than classes or targets: a smaller one would be trained wrongly.
  status = Refused(Mlp({10, 4}, LossKind::kSoftmaxCrossEntropy), labels);
  EXPECT_THAT(status, HasMessage(AllOf(HasSubstr("3 classes"), HasSubstr("[3], found [4]"))));
  status = Refused(Mlp({10, 3}, LossKind::kMeanSquaredError), vectors);
  EXPECT_THAT(status, HasMessage(AllOf(HasSubstr("loss: 2 values"), HasSubstr("[2], found [3]"))));
}

TEST(ModelTest, LabelsAreSmoothedInTrainingOnly) {
  ModelSpec spec = Mlp({10, 3}, LossKind::kSoftmaxCrossEntropy);
  spec.loss = SoftmaxCrossEntropySpec{.label_smoothing = 0.25};
  const auto model = Model::Make(spec, LabelledSample({10}, 3));
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_EQ(model->divisor_unit(), "samples");
  const auto training = model->RecordTraining({2});
  const auto evaluation = model->RecordEvaluation({2});
  ASSERT_TRUE(training.ok() && evaluation.ok());
  std::vector<float> smoothing;
  for (const Node& node : training->graph.nodes()) {
    const auto* loss = dynamic_cast<const TokenCrossEntropy*>(node.function.get());
    if (loss != nullptr) smoothing.push_back(loss->options().label_smoothing);
  }
  EXPECT_THAT(smoothing, testing::ElementsAre(0.25F));
  for (const Node& node : evaluation->graph.nodes()) {
    EXPECT_EQ(dynamic_cast<const TokenCrossEntropy*>(node.function.get()), nullptr);
  }
}

TEST(ModelTest, WeightsOfSamplesAreTheDivisor) {
  SampleSpec sample = LabelledSample({10}, 3);
  sample.tensors.push_back({"weights", DType::kF32, {}});
  const auto model = Model::Make(Mlp({10, 3}, LossKind::kSoftmaxCrossEntropy), sample);
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_EQ(model->divisor_unit(), "weights");
  EXPECT_EQ(model->divisor_unit(/*weighted=*/false), "samples");
  sample = TargetSample({10}, 3);
  sample.tensors.push_back({"weights", DType::kF32, {}});
  EXPECT_THAT(Refused(Mlp({10, 3}, LossKind::kMeanSquaredError), sample),
              HasMessage("mean_squared_error takes no weights"));
}

TEST(ModelTest, RefusesWhatHasNothingToLearnAndWhatIsTooLarge) {
  const SampleSpec vectors = TargetSample({2}, 2);
  Status status = Refused({.layer = {}, .loss = MeanSquaredErrorSpec{}}, vectors);
  EXPECT_THAT(status, HasKind(ErrorKind::kConfig));
  EXPECT_THAT(status, HasMessage(HasSubstr("depends on no parameter")));

  constexpr std::int64_t kHuge = std::int64_t{1} << 40;
  status = Refused(Mlp({kHuge, kHuge}, LossKind::kMeanSquaredError), TargetSample({kHuge}, kHuge));
  EXPECT_THAT(status, HasKind(ErrorKind::kConfig));
  EXPECT_THAT(status, HasMessage(AllOf(HasSubstr("fc1.weight"), HasSubstr("2^48 bytes"))));

  ModelSpec flat = Mlp({4, 2}, LossKind::kMeanSquaredError);
  flat.layer.insert(flat.layer.begin(), {"flatten", FlattenSpec{}});
  status = Refused(flat, TargetSample({kHuge, kHuge}, 2));
  EXPECT_THAT(status, HasKind(ErrorKind::kConfig));
  EXPECT_THAT(status, HasMessage(AllOf(HasSubstr("features"), HasSubstr("2^48 bytes"))));
}

TEST(ModelTest, RefusesAMicroBatchThatIsTooLarge) {
  const Model model = MakeMlp({784, 10});
  const auto graph = model.RecordTraining({std::int64_t{1} << 45});
  ASSERT_FALSE(graph.ok());
  EXPECT_THAT(graph, HasKind(ErrorKind::kConfig));
}

TEST(ModelTest, InitialWeightsAreAFunctionOfTheSeedInTheRangeOfPyTorch) {
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
