#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include "daemon/tensor/flat_layout.h"
#include "daemon/tensor/float_types.h"
#include "daemon/tensor/group_rules.h"
#include "daemon/tensor/random.h"
#include "daemon/tensor/shape.h"
#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

TEST(ShapeTest, CountsElementsAndPrints) {
  EXPECT_EQ(Elements({}), 1);
  EXPECT_EQ(Elements({32, 784}), 32 * 784);
  EXPECT_EQ(Elements({3, 0}), 0);
  EXPECT_EQ(ToString({32, 784}), "[32, 784]");
  EXPECT_EQ(ToString({}), "[]");
  EXPECT_EQ((ValueSpec{{3, 2}, DType::kF64}.bytes()), 48);
}

TEST(ShapeTest, RefusesNegativeOrTooLarge) {
  EXPECT_TRUE(CheckShape({4, 0, 3}, DType::kF32).ok());
  EXPECT_TRUE(CheckShape({std::int64_t{1} << 46}, DType::kF32).ok());

  const Status negative = CheckShape({4, -3}, DType::kF32);
  EXPECT_THAT(negative, IsError(ErrorKind::kConfig, "[4, -3]", "-3 is negative"));

  constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
  const std::vector<Shape> too_large = {
      {(std::int64_t{1} << 46) + 1},  // one element too many
      {kMax},
      {kMax, kMax},                                        // overflows 64 bits
      {std::int64_t{1} << 32, std::int64_t{1} << 32},      // wraps around to 0
      {0, std::int64_t{1} << 32, std::int64_t{1} << 32}};  // empty, but its parts overflow
  for (const Shape& shape : too_large) {
    EXPECT_THAT(CheckShape(shape, DType::kF32), IsError(ErrorKind::kConfig, ToString(shape)))
        << ToString(shape);
  }
}

TEST(FlatLayoutTest, AlignsParametersToCacheLines) {
  FlatLayout layout;
  EXPECT_EQ(*layout.Add("fc1.weight", {3, 7}), 0u);
  EXPECT_EQ(*layout.Add("fc1.bias", {3}), 1u);
  EXPECT_EQ(*layout.Add("fc2.weight", {4, 4}), 2u);
  EXPECT_EQ(*layout.Add("fc2.bias", {17}), 3u);
  std::int64_t end = 0;
  for (const FlatEntry& entry : layout.entries()) {
    EXPECT_EQ(entry.offset % FlatLayout::kAlignment, 0) << entry.name;
    EXPECT_GE(entry.offset, end) << entry.name;
    EXPECT_LT(entry.offset, end + FlatLayout::kAlignment) << entry.name;
    EXPECT_EQ(entry.elements, Elements(entry.shape));
    end = entry.offset + entry.elements;
  }
  EXPECT_EQ(layout.parameters(), 21 + 3 + 16 + 17);
  EXPECT_EQ(layout.size(), 32 + 16 + 16 + 32);
  ASSERT_NE(layout.Find("fc2.weight"), nullptr);
  EXPECT_EQ(layout.Find("fc2.weight")->offset, 48);
  EXPECT_EQ(layout.Find("fc3.weight"), nullptr);
}

TEST(FlatLayoutTest, RefusesDuplicateNameAndBadShape) {
  FlatLayout layout;
  ASSERT_TRUE(layout.Add("fc1.weight", {3}).ok());
  EXPECT_THAT(layout.Add("fc1.weight", {4}), IsError(ErrorKind::kConfig, "'fc1.weight'"));

  EXPECT_THAT(layout.Add("fc2.weight", {std::int64_t{1} << 40, std::int64_t{1} << 40}),
              IsError(ErrorKind::kConfig, "fc2.weight"));
  EXPECT_EQ(layout.size(), 16);  // as before
}

TEST(GroupRulesTest, LastRuleWithValueApplies) {
  FlatLayout layout;
  ASSERT_TRUE(layout.Add("bert.embeddings.word.weight", {4}).ok());
  ASSERT_TRUE(layout.Add("bert.layer.0.norm.weight", {4}, kNoDecay).ok());
  ASSERT_TRUE(layout.Add("fc1.weight", {4}).ok());
  ASSERT_TRUE(layout.Add("fc1.bias", {4}).ok());
  OptimizerSpec spec;
  spec.group = {{.match = "*.bias", .weight_decay = 0.0},
                {.match = "fc1.*", .lr_factor = 0.5},
                {.match = "fc?.weight", .weight_decay = 0.25, .lr_factor = 2.0},
                {.match = "bert.*", .freeze = true},
                {.match = "bert.layer.*", .freeze = false}};
  ASSERT_TRUE(ApplyGroupRules(spec, &layout).ok());
  std::vector<std::string> found;
  for (const FlatEntry& entry : layout.entries()) {
    found.push_back(entry.frozen ? "frozen" : GroupText(entry.group));
  }
  EXPECT_EQ(found, (std::vector<std::string>{"frozen", "no_decay", "weight_decay 0.25, lr_factor 2",
                                             "no_decay, lr_factor 0.5"}));
  EXPECT_EQ(layout.trainable_size(), 3 * 16);
  spec.kind = AdamWSpec{.weight_decay = 0.1};
  EXPECT_EQ(DecayText(layout, spec),
            "frozen: 1 of 4 (bert.embeddings.word.weight); 0 for 2 (bert.layer.0.norm.weight, "
            "...); 0.25 for 1 (fc1.weight)");
  FlatLayout plain;
  ASSERT_TRUE(plain.Add("fc1.weight", {4}).ok());
  EXPECT_EQ(DecayText(plain, spec), "0.1 for 1 of 1 (fc1.weight)");
  ASSERT_TRUE(plain.Add("bn1.running_mean", {4}, kNoDecay, /*frozen=*/true).ok());
  plain.SetBuffer(1);
  EXPECT_EQ(DecayText(plain, spec), "0.1 for 1 of 1 (fc1.weight)") << "buffers do not count";
  spec.kind = SgdSpec{};
  EXPECT_EQ(DecayText(plain, spec), "none");
}

TEST(GroupRulesTest, RefusesEmptyRuleAndNothingToTrain) {
  FlatLayout layout;
  ASSERT_TRUE(layout.Add("fc1.weight", {4}).ok());
  const auto error = [&](const OptimizerSpec& spec) {
    const Status status = ApplyGroupRules(spec, &layout);
    EXPECT_THAT(status, HasKind(ErrorKind::kConfig));
    return status.message();
  };
  OptimizerSpec spec;
  spec.group = {{.match = "*.bais", .weight_decay = 0.0}};
  EXPECT_THAT(error(spec), HasSubstr("optimizer.group '*.bais' matches no parameter"));
  spec.group = {{.match = "head.*", .freeze = true}};
  EXPECT_THAT(ApplyGroupRules(spec, &layout, {{"head.weight", "fc1.weight"}}),
              IsError(ErrorKind::kConfig, "'head.weight' is another name of 'fc1.weight'"));
  spec.group = {{.match = "fc1.*"}};
  EXPECT_THAT(error(spec), HasSubstr("'fc1.*' needs weight_decay"));
  spec.group = {{.match = "*", .freeze = true}};
  EXPECT_THAT(error(spec), HasSubstr("nothing to train"));
  ASSERT_TRUE(layout.Add("bn1.running_mean", {4}, kNoDecay, /*frozen=*/true).ok());
  layout.SetBuffer(1);
  spec.group = {{.match = "*.running_*", .freeze = true}};
  EXPECT_THAT(error(spec),
              HasSubstr("matches only values that the optimizer does not change: running"));
}

TEST(RandomTest, QuantileInvertsTheNormalDistribution) {
  for (const double p : {1e-15, 1e-9, 0.001, 0.07, 0.075, 0.3, 0.5, 0.8, 0.93, 0.999, 1 - 1e-9}) {
    const double x = NormalQuantile(p);
    EXPECT_NEAR(0.5 * std::erfc(-x / std::numbers::sqrt2) / p, 1, 5e-6) << p;
  }
}

TEST(FiniteTest, FindsTheFirst) {
  using Limits = std::numeric_limits<float>;
  constexpr std::size_t kValues = 4096 + 37;  // a whole block, and a part
  std::vector<float> values(kValues, -Limits::max());
  values[5] = Limits::denorm_min();
  EXPECT_EQ(FirstNotFinite(values), kValues);
  for (const float bad : {Limits::infinity(), -Limits::infinity(), Limits::quiet_NaN(),
                          -Limits::quiet_NaN(), Limits::signaling_NaN()}) {
    for (const std::size_t at : {std::size_t{0}, std::size_t{17}, kValues - 1}) {
      std::vector<float> found = values;
      found[at] = bad;
      found.back() = bad;
      EXPECT_EQ(FirstNotFinite(found), at) << bad;
    }
  }
  EXPECT_EQ(FirstNotFinite({}), 0);
}

}  // namespace
}  // namespace gaccd
