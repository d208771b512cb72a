// Curves in bounded memory.
#include "daemon/inspect/report/curve.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace gaccd {
namespace {

using testing::ElementsAre;

double Value(std::int64_t step) { return std::sin(static_cast<double>(step) * 12.9898) * 43758.5; }

TEST(CurveTest, KeepsFewPoints) {
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

TEST(CurveTest, IgnoresLostUpdates) {
  Curve curve;
  const auto add = [&](std::int64_t first, std::int64_t last, double value) {
    curve.BeginPiece();
    for (std::int64_t step = first; step <= last; ++step) curve.Add(step, value);
  };
  add(1, 4, 1);
  add(3, 5, 2);  // does 3 and 4 again
  EXPECT_THAT(curve.lost_from(), ElementsAre(3, testing::Gt(5)));
  curve.RewindTo(3);
  EXPECT_THAT(curve.KeptPieces(), ElementsAre(ElementsAre(CurvePoint{1, 1}, CurvePoint{2, 1}),
                                              ElementsAre(CurvePoint{3, 2})));
  add(1, 1, 3);  // trains anew
  EXPECT_THAT(curve.KeptPieces(), ElementsAre(ElementsAre(CurvePoint{1, 3})));
  EXPECT_EQ(curve.Pieces().size(), 3);
}

TEST(CurveTest, ThinningKeepsExtremesAndAddsNothing) {
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

TEST(CurveTest, LimitTruncatesExistingPoints) {
  Curve curve(1000);
  for (std::int64_t step = 1; step <= 1000; ++step) curve.Add(step, Value(step));
  curve.Limit(10);
  EXPECT_LE(curve.Pieces()[0].size(), 4 * 11);
  EXPECT_EQ(curve.Pieces()[0].back(), (CurvePoint{1000, Value(1000)}));
}

TEST(CurveTest, IntervalSumsAreComplete) {
  BinSums<std::int64_t> sums(10);
  for (std::int64_t step = 1; step <= 1000; ++step) sums.Add(step, step);
  for (std::int64_t step = 900; step <= 950; ++step) sums.Add(step, 1);  // done again
  std::int64_t all = 0;
  for (const auto& [index, sum] : sums.sums()) all += sum;
  EXPECT_EQ(all, 500 * 1001 + 51);
  EXPECT_LE(sums.sums().size(), 10U);
  EXPECT_EQ(sums.width(), 128);
}

}  // namespace
}  // namespace gaccd
