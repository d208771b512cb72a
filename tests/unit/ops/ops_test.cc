// What the operations refuse, and float against double. Their gradients:
// tests/ranks/op_gradients.h.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "collectives/comm/threads.h"
#include "collectives/ops/all_gather.h"
#include "collectives/ops/all_reduce_mean.h"
#include "collectives/ops/all_reduce_sum.h"
#include "collectives/ops/broadcast.h"
#include "collectives/ops/ragged_rows.h"
#include "collectives/ops/reduce_scatter.h"

namespace gaccd::collectives {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

void ExpectRefused(const Status& status, const std::string& part) {
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.kind(), ErrorKind::kInternal);
  EXPECT_THAT(status.message(), HasSubstr(part));
}

RaggedRows Rows(std::vector<std::int64_t> rows, std::int64_t width) {
  return RaggedRows::Make(rows, width).value();
}

TEST(RaggedRows, KnowsElementsAndOffsets) {
  const RaggedRows rows = Rows({3, 0, 5}, 4);
  EXPECT_EQ(rows.ranks(), 3);
  EXPECT_EQ(rows.width(), 4);
  EXPECT_EQ(rows.rows_of(2), 5);
  EXPECT_EQ(rows.total_rows(), 8);
  EXPECT_EQ(rows.total_elements(), 32);
  EXPECT_EQ(rows.elements_of(0), 12);
  EXPECT_EQ(rows.elements_of(1), 0);
  EXPECT_EQ(rows.offset_of(1), 12);
  EXPECT_EQ(rows.offset_of(2), 12);
}

TEST(RaggedRows, RefusesNegativeAndHuge) {
  const std::array<std::int64_t, 2> negative = {1, -2};
  ExpectRefused(RaggedRows::Make(negative, 4).status(), "rank 1 has -2 rows");
  const std::array<std::int64_t, 1> one = {1};
  ExpectRefused(RaggedRows::Make(one, -4).status(), "found -4");
  const std::array<std::int64_t, 2> huge = {1, std::numeric_limits<std::int64_t>::max() / 2};
  ExpectRefused(RaggedRows::Make(huge, 3).status(), "overflows at rank 1");
  const std::array<std::int64_t, 2> sum = {std::numeric_limits<std::int64_t>::max(), 1};
  ExpectRefused(RaggedRows::Make(sum, 1).status(), "overflows at rank 1");
}

TEST(RaggedRows, RanksTellEachOther) {
  const Status status = RunThreadRanks(3, {}, [](Communicator& comm) {
    auto rows = RaggedRows::Exchange(comm, comm.rank() == 1 ? 0 : comm.rank() + 4, 6);
    GACCD_RETURN_IF_ERROR(rows.status());
    EXPECT_EQ(rows->rows_of(0), 4);
    EXPECT_EQ(rows->rows_of(1), 0);
    EXPECT_EQ(rows->rows_of(2), 6);
    EXPECT_EQ(rows->width(), 6);
    return Status::Ok();
  });
  EXPECT_TRUE(status.ok()) << status.message();
}

TEST(RaggedRows, DifferentWidthsAreNamedOnEveryRank) {
  const Status status = RunThreadRanks(3, {}, [](Communicator& comm) {
    ExpectRefused(RaggedRows::Exchange(comm, 1, comm.rank() == 2 ? 7 : 6).status(),
                  "rank 2 has rows of 7 elements where rank 0 has rows of 6");
    return Status::Ok();
  });
  EXPECT_TRUE(status.ok()) << status.message();
}

class OpsTest : public ::testing::Test {
 protected:
  std::unique_ptr<Communicator> comm_ = MakeSingle();
  std::vector<float> a_ = std::vector<float>(6);
  std::vector<float> b_ = std::vector<float>(6);
  std::vector<std::int32_t> ints_ = std::vector<std::int32_t>(6);
};

TEST_F(OpsTest, InputsMustNotChangeSoOutputsMustBeApart) {
  const MutableBuffer a = View(std::span(a_));
  ExpectRefused(AllReduceSum(*comm_).Forward(a, a), "overlaps the input");
  ExpectRefused(AllReduceSum(*comm_).Backward(a, a), "overlaps the input");
  ExpectRefused(AllReduceMean(*comm_).Forward(a, 2, a), "overlaps the input");
  ExpectRefused(AllReduceMean(*comm_).Backward(a, 2, a), "overlaps the input");
  ExpectRefused(AllGather(*comm_, Rows({3}, 2)).Forward(a, a), "overlaps the input");
  ExpectRefused(AllGather(*comm_, Rows({3}, 2)).Backward(a, a), "overlaps the input");
  ExpectRefused(ReduceScatter(*comm_, Rows({3}, 2)).Forward(a, a), "overlaps the input");
  ExpectRefused(ReduceScatter(*comm_, Rows({3}, 2)).Backward(a, a), "overlaps the input");
  ExpectRefused(Broadcast(*comm_, 0).Forward(a, a), "overlaps the input");
  ExpectRefused(Broadcast(*comm_, 0).Backward(a, a), "overlaps the input");
}

TEST_F(OpsTest, RefuseOtherTypesAndDeviceMemory) {
  const MutableBuffer a = View(std::span(a_));
  const MutableBuffer ints = View(std::span(ints_));
  MutableBuffer device = View(std::span(b_));
  device.memory = MemoryKind::kCuda;
  ExpectRefused(AllReduceSum(*comm_).Forward(a, ints), "found f32 and i32");
  ExpectRefused(AllReduceSum(*comm_).Forward(device, a), "found f32 on a device");
}

TEST_F(OpsTest, RefuseOtherSizes) {
  constexpr auto kReplicated = GradConvention::kReplicatedLoss;
  const MutableBuffer a = View(std::span(a_));
  const MutableBuffer five = View(std::span(b_).first(5));
  ExpectRefused(AllReduceSum(*comm_).Forward(a, five), "must have 6 elements, found 5");
  ExpectRefused(AllReduceSum(*comm_, kReplicated).Backward(a, five), "must have 6");
  ExpectRefused(AllReduceMean(*comm_, kReplicated).Backward(a, 3, five), "must have 6");
  ExpectRefused(AllGather(*comm_, Rows({3}, 2)).Forward(five, a), "must have 6");
  ExpectRefused(AllGather(*comm_, Rows({3}, 2), kReplicated).Backward(five, a), "must have 6");
  ExpectRefused(AllGather(*comm_, Rows({3}, 2), kReplicated).Backward(a, five), "must have 6");
  ExpectRefused(ReduceScatter(*comm_, Rows({3}, 2)).Forward(a, five), "must have 6");
  ExpectRefused(Broadcast(*comm_, 0).Forward(a, five), "must have 6");
  ExpectRefused(Broadcast(*comm_, 0, kReplicated).Backward(a, five), "must have 6");
}

TEST_F(OpsTest, MeanNeedsACount) {
  const MutableBuffer a = View(std::span(a_));
  const MutableBuffer b = View(std::span(b_));
  ExpectRefused(AllReduceMean(*comm_).Forward(a, 0, b), "at least 1, found 0");
  ExpectRefused(AllReduceMean(*comm_).Backward(a, -3, b), "at least 1, found -3");
}

TEST(AllReduceMean, DividesByTheCountAndNotByTheRanks) {
  const Status status = RunThreadRanks(3, {}, [](Communicator& comm) {
    const std::array<float, 2> x = {1.0F + static_cast<float>(comm.rank()), 10.0F};
    std::array<float, 2> y{};
    GACCD_RETURN_IF_ERROR(
        AllReduceMean(comm).Forward(View(std::span<const float>(x)), 4, View(std::span<float>(y))));
    EXPECT_EQ(y[0], 6.0F / 4.0F);
    EXPECT_EQ(y[1], 30.0F / 4.0F);
    return Status::Ok();
  });
  EXPECT_TRUE(status.ok()) << status.message();
}

TEST(AllReduceMean, CountsAboveTheWholeNumbersOfAFloat) {
  // 2^24 + 1 is no float; a quotient by 2^24 differs in the last place.
  const std::int64_t count = (std::int64_t{1} << 24) + 1;
  const auto comm = MakeSingle();
  std::vector<float> x;
  for (int i = 0; i < 1000; ++i) x.push_back(1.0F + static_cast<float>(i) / 1000.0F);
  std::vector<float> y(x.size());
  ASSERT_TRUE(AllReduceMean(*comm)
                  .Forward(View(std::span<const float>(x)), count, View(std::span(y)))
                  .ok());
  for (std::size_t i = 0; i < x.size(); ++i) {
    EXPECT_EQ(y[i], static_cast<float>(static_cast<double>(x[i]) / static_cast<double>(count)));
  }
}

// The same operation in float and in double, forward and backward, of values whose sums are exact.
TEST(OpsInFloat, AreTheOpsInDouble) {
  const Status status = RunThreadRanks(3, {}, [](Communicator& comm) {
    const RaggedRows rows = Rows({2, 0, 3}, 5);
    const auto mine = static_cast<std::size_t>(rows.elements_of(comm.rank()));
    const auto all = static_cast<std::size_t>(rows.total_elements());
    std::vector<float> x(all);
    for (std::size_t i = 0; i < all; ++i) {
      x[i] = std::round(64 * std::sin(static_cast<float>(i) + static_cast<float>(comm.rank())));
    }
    const std::vector<double> x64(x.begin(), x.end());
    std::vector<float> y(mine);
    std::vector<double> y64(mine);
    ReduceScatter scatter(comm, rows);
    AllGather gather(comm, rows);
    GACCD_RETURN_IF_ERROR(scatter.Forward(View(std::span<const float>(x)), View(std::span(y))));
    GACCD_RETURN_IF_ERROR(
        scatter.Forward(View(std::span<const double>(x64)), View(std::span(y64))));
    for (std::size_t i = 0; i < mine; ++i) EXPECT_EQ(y[i], static_cast<float>(y64[i]));
    GACCD_RETURN_IF_ERROR(gather.Backward(View(std::span<const float>(x)), View(std::span(y))));
    for (std::size_t i = 0; i < mine; ++i) EXPECT_EQ(y[i], static_cast<float>(y64[i]));
    std::vector<float> back(all);
    GACCD_RETURN_IF_ERROR(gather.Forward(View(std::span<const float>(y)), View(std::span(back))));
    std::vector<float> sum(all);
    GACCD_RETURN_IF_ERROR(
        AllReduceSum(comm).Forward(View(std::span<const float>(x)), View(std::span(sum))));
    EXPECT_EQ(back, sum);
    return Status::Ok();
  });
  EXPECT_TRUE(status.ok()) << status.message();
}

}  // namespace
}  // namespace gaccd::collectives
