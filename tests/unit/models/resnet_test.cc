// ResNets: what torchvision calls their tensors, and what is refused. What they compute:
// tests/golden/train/resnet*.txtpb.
#include "daemon/models/resnet.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <sstream>

#include "collectives/base/strings.h"
#include "daemon/replica/model.h"
#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

TEST(ResnetTest, TensorNamesEqualTorchvision) {
  std::ifstream golden(GACCD_GOLDEN_DIR "/resnet_names.txt");
  std::map<std::string, std::vector<std::string>> expected;
  for (std::string model, tensor; golden >> model && std::getline(golden, tensor);) {
    expected[model].push_back(tensor);
  }
  ASSERT_EQ(expected.size(), 3U);
  for (const std::int64_t depth : {18, 34, 50}) {
    const Resnet resnet({.depth = depth});
    std::vector<std::string> found;
    for (const nn::ParameterSpec& spec : resnet.parameters().specs()) {
      std::ostringstream line;
      line << ' ' << spec.name;
      for (const std::int64_t size : spec.shape) line << ' ' << size;
      found.push_back(line.str());
    }
    std::vector<std::string>& names = expected[StrCat("resnet", depth)];
    std::ranges::sort(found);
    std::ranges::sort(names);
    EXPECT_EQ(found, names) << depth;
  }
}

SampleSpec ImageSample(const Shape& image) { return LabelledSample(image, 10); }

ModelSpec Small(std::int64_t channels) {
  return {.loss = SoftmaxCrossEntropySpec{},
          .architecture = ResnetSpec{.blocks = {1, 1},
                                     .width = 4,
                                     .classes = 10,
                                     .channels = channels,
                                     .stem = ResnetStem::kSmall}};
}

TEST(ResnetTest, AcceptsGreyImagesWithoutChannelsAndSquareVectors) {
  for (const Shape& image : {Shape{1, 8, 8}, Shape{8, 8}, Shape{64}}) {
    const auto model = Model::Make(Small(1), ImageSample(image));
    ASSERT_TRUE(model.ok()) << ToString(image) << ": " << model.status().message();
    // A batch norm after each of 6 convolutions: a sum forward, another one backward.
    EXPECT_EQ(model->update_sums(), 12);
    // torch: sum(p.numel() for p in model.parameters()), without running statistics.
    EXPECT_EQ(model->layout().parameters(), 1382);
  }
  EXPECT_THAT(Model::Make(Small(1), ImageSample({60})), IsError(ErrorKind::kConfig, "60"));
  EXPECT_THAT(Model::Make(Small(3), ImageSample({1, 8, 8})),
              IsError(ErrorKind::kConfig, "[1, 8, 8]"));
}

TEST(ResnetTest, MicroBatchNormsNeedNoUpdateSum) {
  ModelSpec spec = Small(1);
  auto& resnet = std::get<ResnetSpec>(spec.architecture);
  const auto window = Model::Make(spec, ImageSample({8, 8}));
  ASSERT_TRUE(window.ok()) << window.status().message();
  EXPECT_EQ(window->micro_values(), 0);
  EXPECT_EQ(window->running_statistics().size(), 6U);
  resnet.stats = BatchStatistics::kMicro;
  const auto model = Model::Make(spec, ImageSample({8, 8}));
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_EQ(model->update_sums(), 0);
  EXPECT_EQ(model->micro_values(), 4 * 4) << "pixels of the last stage";
  EXPECT_EQ(model->running_statistics().size(), 6U);
  resnet.stats = BatchStatistics::kFrozen;
  const auto frozen = Model::Make(spec, ImageSample({8, 8}));
  ASSERT_TRUE(frozen.ok()) << frozen.status().message();
  EXPECT_EQ(frozen->micro_values(), 0);
  EXPECT_TRUE(frozen->running_statistics().empty());
}

TEST(ResnetTest, GroupNormsNeedNoUpdateSum) {
  ModelSpec spec = Small(1);
  std::get<ResnetSpec>(spec.architecture).groups = 2;
  const auto model = Model::Make(spec, ImageSample({8, 8}));
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_EQ(model->update_sums(), 0);
}

}  // namespace
}  // namespace gaccd
