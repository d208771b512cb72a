#include "collectives/comm/checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <vector>

#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

void ExpectOperandsRefused(const Status& status, const std::string& part) {
  EXPECT_THAT(status, IsError(ErrorKind::kInternal, part));
}

class ChecksTest : public ::testing::Test {
 protected:
  std::vector<float> a_ = std::vector<float>(8);
  std::vector<float> b_ = std::vector<float>(8);
};

TEST_F(ChecksTest, AllReduceAcceptsSameOrDisjointMemory) {
  EXPECT_TRUE(CheckAllReduce(View(std::span(a_)), View(std::span(a_))).ok());
  EXPECT_TRUE(CheckAllReduce(View(std::span(a_)), View(std::span(b_))).ok());
  EXPECT_TRUE(CheckAllReduce(View(std::span(a_).first(4)), View(std::span(a_).subspan(4))).ok());
  EXPECT_TRUE(CheckAllReduce({}, {}).ok());
  ExpectOperandsRefused(
      CheckAllReduce(View(std::span(a_).first(5)), View(std::span(a_).subspan(3))),
      "partial overlap");
}

TEST_F(ChecksTest, AllReduceRefusesOtherCountsTypesAndMemory) {
  ExpectOperandsRefused(CheckAllReduce(View(std::span(a_)), View(std::span(b_).first(7))),
                        "'out' must have 8 elements, found 7");
  std::vector<std::int32_t> ints(8);
  ExpectOperandsRefused(CheckAllReduce(View(std::span(a_)), View(std::span(ints))),
                        "'out' must be f32 as 'in' is, found i32");
  std::vector<std::uint8_t> bytes(8);
  ExpectOperandsRefused(CheckAllReduce(View(std::span(bytes)), View(std::span(bytes))), "found u8");
  MutableBuffer device = View(std::span(a_));
  device.memory = MemoryKind::kCuda;
  ExpectOperandsRefused(CheckAllReduce(device, device), "must be host memory");
  ExpectOperandsRefused(CheckAllReduce({nullptr, 3}, View(std::span(a_).first(3))),
                        "but no memory");
}

TEST_F(ChecksTest, GatherNeedsOneCountPerRank) {
  const std::array<std::int64_t, 3> counts = {1, 0, 7};
  EXPECT_TRUE(CheckAllGather(View(std::span(a_).first(7)), counts, View(std::span(b_)), 2, 3).ok());
  EXPECT_TRUE(CheckAllGather({}, counts, View(std::span(b_)), 1, 3).ok());
  ExpectOperandsRefused(CheckAllGather(View(std::span(a_)), counts, View(std::span(b_)), 2, 4),
                        "expected 4 counts, one for each rank, found 3");
  ExpectOperandsRefused(CheckAllGather(View(std::span(a_)), counts, View(std::span(b_)), 2, 3),
                        "'in' must have 7 elements, found 8");
  ExpectOperandsRefused(
      CheckAllGather(View(std::span(a_).first(7)), counts, View(std::span(b_).first(7)), 2, 3),
      "'out' must have 8 elements, found 7");
}

TEST_F(ChecksTest, RefusesNegativeOrOverflowingCounts) {
  const std::array<std::int64_t, 2> negative = {9, -1};
  ExpectOperandsRefused(CheckAllGather({}, negative, View(std::span(b_)), 1, 2), "negative");
  const std::array<std::int64_t, 2> huge = {std::numeric_limits<std::int64_t>::max(), 1};
  ExpectOperandsRefused(
      CheckAllGather(View(std::span(a_).first(1)), huge, View(std::span(b_)), 1, 2), "overflows");
}

TEST_F(ChecksTest, ChecksScatterLikeGather) {
  const std::array<std::int64_t, 2> counts = {3, 5};
  EXPECT_TRUE(
      CheckReduceScatter(View(std::span(a_)), counts, View(std::span(b_).first(5)), 1, 2).ok());
  ExpectOperandsRefused(CheckReduceScatter(View(std::span(a_)), counts, View(std::span(b_)), 1, 2),
                        "'out' must have 5 elements, found 8");
  // In place, each at its own part.
  const auto part = [&](std::size_t first, std::size_t count) {
    return View(std::span(a_).subspan(first, count));
  };
  const auto whole = View(std::span(a_));
  EXPECT_TRUE(CheckReduceScatter(whole, counts, part(0, 3), 0, 2).ok());
  EXPECT_TRUE(CheckReduceScatter(whole, counts, part(3, 5), 1, 2).ok());
  ExpectOperandsRefused(CheckReduceScatter(whole, counts, part(1, 3), 0, 2),
                        "found another overlap");
  EXPECT_TRUE(CheckAllGather(part(3, 5), counts, whole, 1, 2).ok());
  ExpectOperandsRefused(CheckAllGather(part(2, 5), counts, whole, 1, 2), "found another overlap");
}

TEST_F(ChecksTest, RootMustExist) {
  EXPECT_TRUE(CheckBroadcast(View(std::span(a_)), 1, 2).ok());
  ExpectOperandsRefused(CheckBroadcast(View(std::span(a_)), 2, 2), "root must be 0..1, found 2");
  ExpectOperandsRefused(CheckBroadcast(View(std::span(a_)), -1, 2), "found -1");
}

TEST_F(ChecksTest, ComputesOffsets) {
  const std::array<std::int64_t, 3> counts = {3, 0, 5};
  EXPECT_EQ(PartOffset(counts, 0), 0U);
  EXPECT_EQ(PartOffset(counts, 1), 3U);
  EXPECT_EQ(PartOffset(counts, 2), 3U);
}

}  // namespace
}  // namespace gaccd
