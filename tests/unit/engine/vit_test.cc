// Vision Transformers: their sizes, and what is refused. What they compute:
// tests/golden/models/vit*.txtpb.
#include "daemon/models/vit.h"

#include <gtest/gtest.h>

#include "daemon/model/model.h"
#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

// timm: sum(p.numel() for p in create_model(NAME).parameters())
TEST(VitTest, HasTheParametersOfTimm) {
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

TEST(VitTest, TakesGreyImagesWithoutChannelsAndVectors) {
  for (const Shape& image : {Shape{1, 8, 8}, Shape{8, 8}, Shape{64}}) {
    const auto model = Model::Make(SmallVit(1), LabelledImages(image));
    ASSERT_TRUE(model.ok()) << ToString(image) << ": " << model.status().message();
    EXPECT_TRUE(model->RecordTraining({3}).ok());
    EXPECT_EQ(model->predictions(), 1);
  }
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
