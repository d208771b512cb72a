// Vision Transformers: their sizes, and what is refused. What they compute:
// tests/golden/models/vit*.txtpb.
#include "daemon/models/vit.h"

#include <gtest/gtest.h>

#include "daemon/ops/pointwise/dropout.h"
#include "daemon/replica/model.h"
#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

// timm: sum(p.numel() for p in create_model(NAME).parameters())
TEST(VitTest, HasParametersOfTimm) {
  const std::pair<VitSpec, std::int64_t> sizes[] = {
      {{.width = 192, .heads = 3}, 5717416},   // vit_tiny_patch16_224
      {{.width = 384, .heads = 6}, 22050664},  // vit_small_patch16_224
      {{}, 86567656},                          // vit_base_patch16_224
      {{.image_size = 28, .patch_size = 4, .channels = 1, .width = 192, .heads = 3, .classes = 10},
       5353738}};
  for (const auto& [spec, parameters] : sizes) {
    const Vit vit(spec);
    std::int64_t found = 0;
    for (const nn::ParameterSpec& one : vit.parameters().specs()) found += Elements(one.shape);
    EXPECT_EQ(found, parameters) << spec.width;
  }
}

SampleSpec LabelledImages(const Shape& image) { return LabelledSample(image, 10); }

ModelSpec SmallVit(std::int64_t channels) {
  return {.loss = SoftmaxCrossEntropySpec{},
          .architecture = VitSpec{.image_size = 8,
                                  .patch_size = 4,
                                  .channels = channels,
                                  .width = 12,
                                  .depth = 1,
                                  .heads = 3,
                                  .classes = 10}};
}

TEST(VitTest, AcceptsGreyImagesWithoutChannelsAndVectors) {
  for (const Shape& image : {Shape{1, 8, 8}, Shape{8, 8}, Shape{64}}) {
    const auto model = Model::Make(SmallVit(1), LabelledImages(image));
    ASSERT_TRUE(model.ok()) << ToString(image) << ": " << model.status().message();
    EXPECT_TRUE(model->RecordTraining({3}).ok());
    EXPECT_EQ(model->predictions(), 1);
  }
}

// timm: [getattr(b.drop_path1, "drop_prob", 0) for b in
//        VisionTransformer(depth=4, drop_path_rate=0.3).blocks]
TEST(VitTest, SamplesSkipDeeperBlocksMoreOften) {
  ModelSpec spec = SmallVit(1);
  auto& vit = std::get<VitSpec>(spec.architecture);
  vit.depth = 4;
  vit.drop_path = 0.3;
  const Model model = ValueOrThrow(Model::Make(spec, LabelledImages({8, 8})));
  const auto paths = [](const Graph& graph) {
    std::vector<float> found;
    for (const Node& node : graph.nodes()) {
      const auto* dropout = dynamic_cast<const Dropout*>(node.function.get());
      if (dropout == nullptr) continue;
      EXPECT_TRUE(dropout->options().whole_samples);
      found.push_back(dropout->options().probability);
    }
    return found;
  };
  const std::vector<float> trained = paths(ValueOrThrow(model.RecordTraining({3})).graph);
  ASSERT_EQ(trained.size(), 12U) << "two a block but the first one, forward and backward";
  for (std::size_t i = 0; i < 6; ++i) {
    EXPECT_NEAR(trained[i], 0.1 * static_cast<double>(1 + i / 2), 1e-7);
  }
  EXPECT_TRUE(paths(ValueOrThrow(model.RecordEvaluation({3})).graph).empty());
  vit.depth = 1;
  EXPECT_TRUE(paths(ValueOrThrow(
                        ValueOrThrow(Model::Make(spec, LabelledImages({8, 8}))).RecordTraining({3}))
                        .graph)
                  .empty());
}

TEST(VitTest, RefusesImagesOfAnotherSize) {
  const auto make = [](std::int64_t channels, const Shape& image) {
    return Model::Make(SmallVit(channels), LabelledImages(image)).status();
  };
  EXPECT_THAT(make(1, {60}), IsError(ErrorKind::kConfig, "60"));
  EXPECT_THAT(make(1, {1, 9, 9}),
              IsError(ErrorKind::kConfig, "expected images [1, 8, 8], found [1, 9, 9]"));
  EXPECT_THAT(make(3, {8, 8}),
              IsError(ErrorKind::kConfig, "expected images [3, 8, 8], found [1, 8, 8]"));
}

}  // namespace
}  // namespace gaccd
