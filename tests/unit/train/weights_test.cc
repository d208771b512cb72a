#include "daemon/train/weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <numeric>
#include <vector>

#include "daemon/model/safetensors.h"
#include "tests/unit/base/status_matchers.h"
#include "tests/unit/temp_folder.h"

namespace gaccd {
namespace {

class Weights : public testing::Test {
 protected:
  void SetUp() override {
    // 6 and 3 elements, so that there is padding behind both.
    ASSERT_TRUE(layout_.Add("fc.weight", {3, 2}).ok());
    ASSERT_TRUE(layout_.Add("fc.bias", {3}).ok());
    parameters_.resize(static_cast<std::size_t>(layout_.size()));
    for (const FlatEntry& entry : layout_.entries()) {
      const auto begin = parameters_.begin() + entry.offset;
      std::iota(begin, begin + entry.elements, static_cast<float>(entry.offset) + 0.5F);
    }
  }

  [[nodiscard]] std::string Path() const { return folder_.Path("weights.safetensors"); }
  void Write(const std::vector<TensorView>& tensors) {
    ASSERT_TRUE(WriteSafetensors(Path(), tensors).ok());
  }

  const TempFolder folder_;
  FlatLayout layout_;
  std::vector<float> parameters_;
};

TEST_F(Weights, ComeBackAsTheyWere) {
  ASSERT_TRUE(SaveParameters(Path(), layout_, parameters_).ok());
  std::vector<float> loaded(parameters_.size());
  const Status status = LoadParameters(Path(), layout_, loaded);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(loaded, parameters_);  // the padding is zero in both
}

TEST_F(Weights, OfOthersMayLackThePrefixAndHoldCopiesAndBuffers) {
  const WeightNames names{
      .prefix = "fc.", .buffers = {".mask"}, .tied = {{"head.weight", "fc.weight"}}};
  const std::vector<std::int64_t> shape = {3, 2};
  const std::vector<std::int64_t> three = {3};
  const std::vector<float> weight = {1, 2, 3, 4, 5, 6};
  std::vector<float> copy = weight;
  const std::vector<float> bias = {7, 8, 9};
  const std::vector<TensorView> tensors = {{"weight", shape, weight},
                                           {"bias", three, bias},
                                           {"head.weight", shape, copy},
                                           {"h.0.mask", three, bias}};
  Write(tensors);
  std::vector<float> loaded(parameters_.size());
  const Status status = LoadParameters(Path(), layout_, loaded, names);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_TRUE(std::equal(weight.begin(), weight.end(), loaded.begin()));
  EXPECT_THAT(LoadParameters(Path(), layout_, loaded), HasKind(ErrorKind::kData));

  copy[5] = 0;  // no copy: the model would compute something else than the file's
  Write(tensors);
  EXPECT_THAT(LoadParameters(Path(), layout_, loaded, names),
              HasMessage(testing::HasSubstr("head.weight")));
  Write({{"weight", shape, weight}, {"fc.weight", shape, weight}, {"bias", three, bias}});
  EXPECT_THAT(LoadParameters(Path(), layout_, loaded, names),
              HasMessage(testing::HasSubstr("two tensors")));
}

TEST_F(Weights, HaveTheNamesAndShapesOfAStateDict) {
  ASSERT_TRUE(SaveParameters(Path(), layout_, parameters_).ok());
  const auto file = ReadSafetensors(Path());
  ASSERT_TRUE(file.ok());
  ASSERT_EQ(file->tensors.size(), 2U);
  EXPECT_EQ(file->tensors[0].name, "fc.weight");
  EXPECT_EQ(file->tensors[0].shape, (Shape{3, 2}));
  EXPECT_EQ(file->tensors[0].values, (std::vector<float>{0.5, 1.5, 2.5, 3.5, 4.5, 5.5}));
  EXPECT_EQ(file->tensors[1].shape, (Shape{3}));
}

TEST_F(Weights, AreRefusedWhenTheyAreOfAnotherModel) {
  const std::vector<float> values(6);
  const std::vector<std::int64_t> weight = {3, 2};
  const std::vector<std::int64_t> turned = {2, 3};
  const std::vector<std::int64_t> bias = {3};
  const std::span<const float> six(values);
  std::vector<float> loaded(parameters_.size());
  const auto load = [&] { return LoadParameters(Path(), layout_, loaded); };

  Write({{"fc.weight", weight, six}});
  EXPECT_THAT(load(), HasKind(ErrorKind::kData));
  EXPECT_THAT(load(), HasMessage(testing::HasSubstr("fc.bias")));

  Write({{"fc.weight", turned, six}, {"fc.bias", bias, six.first(3)}});
  EXPECT_THAT(load(), HasKind(ErrorKind::kData));
  EXPECT_THAT(load(), HasMessage(testing::HasSubstr("expected shape [3, 2], found [2, 3]")));

  Write(
      {{"fc.weight", weight, six}, {"fc.bias", bias, six.first(3)}, {"extra", bias, six.first(3)}});
  EXPECT_THAT(load(), HasKind(ErrorKind::kData));
  EXPECT_THAT(load(), HasMessage(testing::HasSubstr("'extra'")));

  std::vector<float> poisoned(6);
  poisoned[4] = std::numeric_limits<float>::quiet_NaN();
  Write({{"fc.weight", weight, poisoned}, {"fc.bias", bias, six.first(3)}});
  EXPECT_THAT(load(), HasKind(ErrorKind::kData));
  EXPECT_THAT(load(), HasMessage(testing::HasSubstr("fc.weight: value 4 is not finite")));

  EXPECT_THAT(LoadParameters(folder_.Path("none"), layout_, loaded), HasKind(ErrorKind::kIo));
}

}  // namespace
}  // namespace gaccd
