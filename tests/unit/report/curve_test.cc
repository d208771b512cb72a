// Curves in bounded memory, and their axes.
#include "daemon/report/curve.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "daemon/report/format_number.h"
#include "daemon/report/scale.h"

namespace gaccd {
namespace {

using testing::ElementsAre;

double Value(std::int64_t step) { return std::sin(static_cast<double>(step) * 12.9898) * 43758.5; }

TEST(CurveTest, FewPointsAreAllThere) {
  Curve curve(8);
  EXPECT_TRUE(curve.empty());
  for (const std::int64_t step : {3, 4, 5}) curve.Add(step, 0.1 * static_cast<double>(step));
  curve.BeginPiece();
  curve.Add(4, 0.25);
  EXPECT_THAT(curve.Pieces(),
              ElementsAre(ElementsAre(CurvePoint{3, 0.1 * 3}, CurvePoint{4, 0.1 * 4},
                                      CurvePoint{5, 0.1 * 5}),
                          ElementsAre(CurvePoint{4, 0.25})));
  EXPECT_EQ(curve.width(), 1);
}

TEST(CurveTest, ThinnedOnesKeepEveryExtremeAndInventNothing) {
  constexpr std::size_t kMax = 50;
  Curve curve(kMax);
  for (std::int64_t step = 1; step <= 10'000; ++step) {
    if (step == 6001) curve.BeginPiece();
    curve.Add(step, step == 777 ? 1e9 : step == 8123 ? -1e9 : Value(step));
  }
  const auto pieces = curve.Pieces();
  ASSERT_EQ(pieces.size(), 2);
  EXPECT_LE(pieces[0].size() + pieces[1].size(), 4 * (kMax + 2));
  EXPECT_THAT(pieces[0], testing::Contains(CurvePoint{777, 1e9}));
  EXPECT_THAT(pieces[1], testing::Contains(CurvePoint{8123, -1e9}));
  EXPECT_EQ(pieces[0].front(), (CurvePoint{1, Value(1)}));
  EXPECT_EQ(pieces[0].back(), (CurvePoint{6000, Value(6000)}));
  EXPECT_EQ(pieces[1].back(), (CurvePoint{10'000, Value(10'000)}));
  for (const CurvePiece& piece : pieces) {
    EXPECT_TRUE(std::ranges::is_sorted(piece, {}, &CurvePoint::step));
    for (const CurvePoint& point : piece) {
      EXPECT_TRUE(std::abs(point.value) == 1e9 || point.value == Value(point.step)) << point.step;
    }
  }
  // Of every stretch of updates, its extremes.
  for (std::int64_t begin = 0; begin + curve.width() < 6000; begin += curve.width()) {
    double most = -1e300;
    for (std::int64_t step = std::max<std::int64_t>(1, begin); step < begin + curve.width();
         ++step) {
      most = std::max(most, step == 777 ? 1e9 : Value(step));
    }
    EXPECT_TRUE(std::ranges::any_of(pieces[0], [&](const CurvePoint& one) {
      return one.step >= begin && one.step < begin + curve.width() && one.value == most;
    })) << begin;
  }
}

TEST(CurveTest, LimitShortensWhatIsThere) {
  Curve curve(1000);
  for (std::int64_t step = 1; step <= 1000; ++step) curve.Add(step, Value(step));
  curve.Limit(10);
  EXPECT_LE(curve.Pieces()[0].size(), 4 * 11);
  EXPECT_EQ(curve.Pieces()[0].back(), (CurvePoint{1000, Value(1000)}));
}

TEST(CurveTest, StretchSumsLoseNothing) {
  BinSums<std::int64_t> sums(10);
  for (std::int64_t step = 1; step <= 1000; ++step) sums.Add(step, step);
  for (std::int64_t step = 900; step <= 950; ++step) sums.Add(step, 1);  // done again
  std::int64_t all = 0;
  for (const auto& [index, sum] : sums.sums()) all += sum;
  EXPECT_EQ(all, 500 * 1001 + 51);
  EXPECT_LE(sums.sums().size(), 10U);
  EXPECT_EQ(sums.width(), 128);
}

TEST(ScaleTest, HasRoomAndRoundTicks) {
  const AxisScale straight = ScaleFor({2, 7.3, 4}, true);
  EXPECT_FALSE(straight.logarithmic);
  EXPECT_LT(straight.At(7.3), 1);
  EXPECT_GT(straight.At(2), 0);
  EXPECT_THAT(Ticks(straight, 5), ElementsAre(2, 4, 6));
  const AxisScale wide = ScaleFor({0.01, 10, 0.5}, true);
  EXPECT_TRUE(wide.logarithmic);
  EXPECT_NEAR(wide.At(std::sqrt(0.01 * 10)), 0.5, 1e-9);
  EXPECT_THAT(Ticks(wide, 5), ElementsAre(0.01, 0.1, 1, 10));
  EXPECT_THAT(Ticks(ScaleFor({0.12, 7}, true), 5), ElementsAre(0.2, 0.5, 1, 2, 5));
  EXPECT_FALSE(ScaleFor({0.01, 10}, false).logarithmic);
  EXPECT_FALSE(ScaleFor({-1, 100}, true).logarithmic);
}

TEST(ScaleTest, OddValuesHaveOneToo) {
  for (const std::vector<double>& values :
       {std::vector<double>{}, {0}, {5}, {-3, -3}, {1e308, -1e308}, {1e-320, 2e-320}}) {
    for (const bool logarithmic : {false, true}) {
      const AxisScale scale = ScaleFor(values, logarithmic);
      EXPECT_LT(scale.low, scale.high);
      EXPECT_LE(Ticks(scale, 5).size(), 101U);
      for (const double value : values) EXPECT_TRUE(std::isfinite(scale.At(value)));
    }
  }
}

// The same learning rate in all updates: one tick, at its value.
TEST(ScaleTest, OneValueHasOneTick) {
  for (const double value : {0.001, 3e-4, -2.0, 0.0, 1.0}) {
    const AxisScale scale = ScaleFor({value, value, value}, true);
    ASSERT_EQ(Ticks(scale, 5).size(), 1U) << value;
    EXPECT_EQ(FormatNumber(Ticks(scale, 5)[0]), FormatNumber(value));
  }
  EXPECT_GT(Ticks(ScaleFor({0.001, 0.0011}, true), 5).size(), 1U);
}

TEST(NumberWordsTest, AreWhatPeopleRead) {
  EXPECT_EQ(FormatCount(1'228'800), "1,228,800");
  EXPECT_EQ(FormatCount(-1234), "-1,234");
  EXPECT_EQ(FormatCount(999), "999");
  EXPECT_EQ(FormatSeconds(2.5e-17), "0 s");
  EXPECT_EQ(FormatSeconds(0.842), "842 ms");
  EXPECT_EQ(FormatSeconds(12.34), "12.3 s");
  EXPECT_EQ(FormatSeconds(7384), "2:03:04");
  EXPECT_EQ(FormatBytes(1.25e9), "1.25 GB");
  EXPECT_EQ(FormatPercent(0.1234), "12.3 %");
  EXPECT_EQ(FormatSignedPercent(0.5625), "+56.2 %");
  EXPECT_EQ(FormatSignedPercent(0), "0 %");
}

}  // namespace
}  // namespace gaccd
