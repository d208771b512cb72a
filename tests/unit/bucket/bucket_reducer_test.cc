#include "collectives/bucket/bucket_reducer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "collectives/base/strings.h"
#include "collectives/comm/threads.h"
#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

void ExpectBucketsRefused(const Status& status, const std::string& part) {
  EXPECT_THAT(status, IsError(ErrorKind::kInternal, part));
}

// Writes down which parts are reduced, in which order; multiplies them by 3, as three ranks with
// the same gradients would.
class RecordingCommunicator final : public Communicator {
 public:
  explicit RecordingCommunicator(const float* base) : base_(base) {}
  [[nodiscard]] std::string_view name() const override { return "recording"; }
  [[nodiscard]] int rank() const override { return 0; }
  [[nodiscard]] int size() const override { return 3; }
  [[nodiscard]] const Topology& topology() const override { return topology_; }
  Result<std::unique_ptr<CommMemory>> Allocate(std::size_t /*bytes*/) override { return Unused(); }
  Status Barrier() override { return Unused(); }
  Result<std::unique_ptr<Communicator>> Split(int /*color*/, int /*key*/) override {
    return Unused();
  }
  void Abort(int /*exit_code*/) noexcept override {}

  bool fail = false;
  std::vector<std::pair<std::ptrdiff_t, std::size_t>> calls;

 private:
  Status DoAllReduceSum(ConstBuffer in, MutableBuffer out, StreamHandle /*stream*/) override {
    if (fail) return Unused();
    EXPECT_EQ(in.data, out.data);
    auto* data = static_cast<float*>(out.data);
    calls.emplace_back(data - base_, out.count);
    for (std::size_t i = 0; i < out.count; ++i) data[i] *= 3;
    return Status::Ok();
  }
  Status DoAllGather(ConstBuffer /*in*/, std::span<const std::int64_t> /*counts*/,
                     MutableBuffer /*out*/, StreamHandle /*stream*/) override {
    return Unused();
  }
  Status DoReduceScatter(ConstBuffer /*in*/, std::span<const std::int64_t> /*counts*/,
                         MutableBuffer /*out*/, StreamHandle /*stream*/) override {
    return Unused();
  }
  Status DoBroadcast(MutableBuffer /*buffer*/, int /*root*/, StreamHandle /*stream*/) override {
    return Unused();
  }
  static Status Unused() { return {ErrorKind::kUnavailable, "rank 2 is lost"}; }
  const float* base_;
  Topology topology_{
      .hosts = {"a", "a", "a"}, .node_of = {0, 0, 0}, .local_rank = 0, .local_size = 3};
};

const std::vector<GradientSlot> kGradients = {{0, 100, 5},  {100, 10, 4}, {110, 50, 3},
                                              {160, 10, 2}, {170, 20, 1}, {190, 2, 0}};
constexpr std::size_t kGradientElements = 192;

class BucketReducerTest : public ::testing::Test {
 protected:
  BucketReducer Make(std::size_t bucket) {
    return BucketReducer::Make(comm_,
                               BucketPlan::Make(kGradients, kGradientElements, bucket).value(),
                               View(std::span(flat_)))
        .value();
  }
  std::vector<float> flat_ = std::vector<float>(kGradientElements, 1.0F);
  RecordingCommunicator comm_{flat_.data()};
};

TEST_F(BucketReducerTest, OneMessageByDefault) {
  BucketReducer reducer = Make(kOneBucket);
  ASSERT_TRUE(reducer.ReduceAll().ok());
  EXPECT_THAT(comm_.calls, ElementsAre(std::pair(0, kGradientElements)));
  EXPECT_TRUE(std::ranges::all_of(flat_, [](float x) { return x == 3; }));
  EXPECT_TRUE(reducer.done());
}

TEST_F(BucketReducerTest, SumsExtraBufferWithLastBucket) {
  BucketReducer reducer = Make(80);  // {3, 4, 5}, {1, 2}, {0}
  ASSERT_TRUE(reducer.MarkReady(5).ok());
  const MutableBuffer with = View(std::span(flat_).last(1));  // stands for one elsewhere
  ASSERT_TRUE(reducer.ReduceAll(with, {}).ok());
  EXPECT_THAT(comm_.calls, ElementsAre(std::pair(160, 32U), std::pair(100, 60U), std::pair(0, 100U),
                                       std::pair(191, 1U)));
  EXPECT_TRUE(reducer.done());
  EXPECT_FALSE(reducer.ReduceAll(with, {}).ok()) << "twice in a cycle";
  ASSERT_TRUE(reducer.NextCycle().ok());
  EXPECT_TRUE(reducer.ReduceAll(with, {}).ok());
}

TEST_F(BucketReducerTest, StartsFullBucketsDuringBackward) {
  BucketReducer reducer = Make(80);  // {3, 4, 5}, {1, 2}, {0}
  std::vector<std::size_t> started;
  for (const std::size_t gradient : {5U, 4U, 3U, 2U, 1U, 0U}) {
    ASSERT_TRUE(reducer.MarkReady(gradient).ok());
    started.push_back(reducer.started());
  }
  EXPECT_THAT(started, ElementsAre(0, 0, 1, 1, 2, 3));
  EXPECT_THAT(comm_.calls,
              ElementsAre(std::pair(160, 32U), std::pair(100, 60U), std::pair(0, 100U)));
}

TEST_F(BucketReducerTest, KeepsOrderIfGradientsAreReadyInAnotherOrder) {
  BucketReducer reducer = Make(80);
  std::vector<std::size_t> started;
  for (const std::size_t gradient : {0U, 1U, 2U, 3U, 4U, 5U}) {
    ASSERT_TRUE(reducer.MarkReady(gradient).ok());
    started.push_back(reducer.started());
  }
  EXPECT_THAT(started, ElementsAre(0, 0, 0, 0, 0, 3));
  EXPECT_THAT(comm_.calls,
              ElementsAre(std::pair(160, 32U), std::pair(100, 60U), std::pair(0, 100U)));
}

TEST_F(BucketReducerTest, ReduceAllReducesRemainingBuckets) {
  BucketReducer reducer = Make(80);
  for (const std::size_t gradient : {5U, 3U, 4U}) ASSERT_TRUE(reducer.MarkReady(gradient).ok());
  ASSERT_TRUE(reducer.ReduceAll().ok());
  EXPECT_EQ(comm_.calls.size(), 3U);
  EXPECT_TRUE(std::ranges::all_of(flat_, [](float x) { return x == 3; }));
}

// The bug of reducing in every micro-step: R * S1 + S2 instead of S1 + S2.
TEST_F(BucketReducerTest, RefusesSecondReductionInOneCycle) {
  BucketReducer reducer = Make(kOneBucket);
  ASSERT_TRUE(reducer.ReduceAll().ok());
  ExpectBucketsRefused(reducer.ReduceAll(), "reduced in this cycle already");
  ExpectBucketsRefused(reducer.MarkReady(3), "gradient 3 is announced twice");
  EXPECT_EQ(comm_.calls.size(), 1U);
  EXPECT_TRUE(std::ranges::all_of(flat_, [](float x) { return x == 3; }));

  ASSERT_TRUE(reducer.NextCycle().ok());
  EXPECT_FALSE(reducer.done());
  EXPECT_TRUE(reducer.ReduceAll().ok());
  EXPECT_EQ(comm_.calls.size(), 2U);
}

TEST_F(BucketReducerTest, RefusesDuplicateOrUnknownAnnouncements) {
  BucketReducer reducer = Make(80);
  ASSERT_TRUE(reducer.MarkReady(4).ok());
  ExpectBucketsRefused(reducer.MarkReady(4), "gradient 4 is announced twice");
  ExpectBucketsRefused(reducer.MarkReady(6), "below 6, found 6");
}

TEST_F(BucketReducerTest, RefusesToEndHalfReducedCycle) {
  BucketReducer reducer = Make(80);
  ASSERT_TRUE(reducer.NextCycle().ok());  // nothing announced: nothing to lose
  ASSERT_TRUE(reducer.MarkReady(0).ok());
  ExpectBucketsRefused(reducer.NextCycle(), "1 of 6 gradients announced; gradient 1 is not ready");
  ASSERT_TRUE(reducer.ReduceAll().ok());
  EXPECT_TRUE(reducer.NextCycle().ok());
}

TEST_F(BucketReducerTest, ReturnsErrorOfCommunicator) {
  BucketReducer reducer = Make(80);
  comm_.fail = true;
  EXPECT_THAT(reducer.ReduceAll(), HasKind(ErrorKind::kUnavailable));
  EXPECT_FALSE(reducer.done());
}

TEST_F(BucketReducerTest, RefusesABufferOfAnotherSize) {
  const auto reducer =
      BucketReducer::Make(comm_, BucketPlan::Make(kGradients, kGradientElements).value(),
                          View(std::span(flat_).first(100)));
  ExpectBucketsRefused(reducer.status(), "expected a buffer of 192 elements, found 100");
}

// Every rank finishes its gradients in an order of its own; the sums are right all the same, and
// the ranks never meet in different calls.
TEST(BucketReducerOnRanks, SumsInAnyAnnouncementOrder) {
  for (const std::size_t bucket : {std::size_t{1}, std::size_t{40}, std::size_t{80}, kOneBucket}) {
    ExpectOk(RunThreadRanks(4, {}, [&](Communicator& comm) {
      std::vector<float> flat(kGradientElements);
      auto plan = BucketPlan::Make(kGradients, kGradientElements, bucket);
      GACCD_RETURN_IF_ERROR(plan.status());
      auto reducer = BucketReducer::Make(comm, *plan, View(std::span(flat)));
      GACCD_RETURN_IF_ERROR(reducer.status());
      std::mt19937 random(static_cast<std::uint32_t>(comm.rank()));
      for (int cycle = 0; cycle < 20; ++cycle) {
        for (std::size_t i = 0; i < kGradientElements; ++i) {
          flat[i] = static_cast<float>(comm.rank() * 1000 + static_cast<int>(i) + cycle);
        }
        std::vector<std::size_t> order(kGradients.size());
        std::iota(order.begin(), order.end(), std::size_t{0});
        std::ranges::shuffle(order, random);
        for (const std::size_t gradient : order) {
          GACCD_RETURN_IF_ERROR(reducer->MarkReady(gradient));
        }
        for (std::size_t i = 0; i < kGradientElements; ++i) {
          if (flat[i] == static_cast<float>(6000 + 4 * (static_cast<int>(i) + cycle))) continue;
          return Status(ErrorKind::kInternal, StrCat("element ", i, " is ", flat[i]));
        }
        GACCD_RETURN_IF_ERROR(reducer->NextCycle());
      }
      return Status::Ok();
    }));
  }
}

}  // namespace
}  // namespace gaccd
