#include "daemon/plan/micro_batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "daemon/plan/plan_text.h"
#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

PlanRequest Published() { return {.nodes = 30, .gpus_per_node = 8, .target_batch = 3072}; }

// So many bytes a sample in addition to `fixed`.
FindMemoryNeed Linear(std::int64_t fixed, std::int64_t a_sample, std::int64_t limit,
                      int* calls = nullptr) {
  return [=](const Plan& plan) -> Result<MemoryNeed> {
    if (calls != nullptr) ++*calls;
    return MemoryNeed{fixed + a_sample * plan.request().micro_batch, limit};
  };
}

MicroBatchChoice Choose(const PlanRequest& request, const FindMemoryNeed& find,
                        const MicroBatchSearch& search = {}) {
  return ValueOrThrow(ChooseMicroBatch(request, search, find));
}

// Room for 10 samples: two micro-steps, which need only 7.
TEST(MicroBatch, IsSmallestWithSameMicroSteps) {
  const MicroBatchChoice choice = Choose(Published(), Linear(100, 10, 205));
  EXPECT_TRUE(choice.fits);
  EXPECT_EQ(choice.plan().request().micro_batch, 7);
  EXPECT_EQ(choice.plan().accum_steps(), 2);
  EXPECT_EQ(MicroBatchText(13, choice.plan().accum_steps()), "7 + 6");
  EXPECT_EQ(choice.plan().memory()->bytes, 170);
  EXPECT_EQ(choice.plan().memory()->limit, 205);
}

TEST(MicroBatch, TakesAllSamplesIfTheyFit) {
  int calls = 0;
  const MicroBatchChoice choice = Choose(Published(), Linear(0, 1, 13, &calls));
  EXPECT_EQ(choice.plan().request().micro_batch, 13);
  EXPECT_EQ(calls, 1);
}

TEST(MicroBatch, FailsIfOneSampleDoesNotFit) {
  const MicroBatchChoice choice = Choose(Published(), Linear(100, 10, 109));
  EXPECT_FALSE(choice.fits);
  EXPECT_EQ(choice.plan().request().micro_batch, 1);
  EXPECT_EQ(choice.plan().memory()->bytes, 110);
  // Where a rank has one sample in all, too.
  EXPECT_FALSE(Choose({.gpus_per_node = 8, .target_batch = 5}, Linear(100, 10, 109)).fits);
}

// The least is needed in between.
TEST(MicroBatch, FindsSizeBetweenOneAndAll) {
  const FindMemoryNeed find = [](const Plan& plan) -> Result<MemoryNeed> {
    return MemoryNeed{2 * plan.request().micro_batch + 3 * plan.accum_steps(), 60};
  };
  const PlanRequest request{.gpus_per_node = 1, .target_batch = 100};
  const MicroBatchChoice choice = Choose(request, find);  // 203, ..., 59, 56, ..., 302
  ASSERT_TRUE(choice.fits);
  EXPECT_EQ(choice.plan().request().micro_batch, 20);  // 2 x 20 + 3 x 5; 25 needs 62
}

TEST(MicroBatch, IsAtMostRequested) {
  const MicroBatchChoice choice = Choose(Published(), Linear(0, 1, 100), {.max_micro_batch = 6});
  EXPECT_EQ(choice.plan().request().micro_batch, 5);  // 13 in three micro-steps
}

TEST(MicroBatch, RefusesOtherRoundings) {
  PlanRequest request = Published();
  request.rounding = Rounding::kCeil;
  EXPECT_THAT(ChooseMicroBatch(request, {}, Linear(0, 1, 100)),
              IsError(ErrorKind::kConfig, "--rounding=exact", "found ceil"));
}

TEST(MicroBatch, ErrorOfNeedEndsSearch) {
  const auto fails = [](const Plan&) -> Result<MemoryNeed> {
    return Status(ErrorKind::kConfig, "no kernel");
  };
  EXPECT_THAT(ChooseMicroBatch(Published(), {}, fails), IsError(ErrorKind::kConfig, "no kernel"));
}

// The choice fits, and the next larger micro-batch with fewer micro-steps does not.
void ExpectLargest(const MicroBatchChoice& choice, const FindMemoryNeed& find) {
  const Plan& plan = choice.plan();
  EXPECT_TRUE(find(plan)->fits());
  const std::int64_t k = plan.accum_steps();
  EXPECT_EQ(plan.request().micro_batch, (plan.ranks_hi_samples() + k - 1) / k);
  if (k == 1) return;
  PlanRequest larger = plan.request();
  larger.micro_batch = (plan.ranks_hi_samples() + k - 2) / (k - 1);
  EXPECT_FALSE(find(ValueOrThrow(Plan::Make(larger)))->fits());
}

TEST(MicroBatch, IsLargestOfRandomPlans) {
  std::mt19937 random(7);
  const auto draw = [&random](std::int64_t most) {
    return 1 + static_cast<std::int64_t>(random() % static_cast<std::uint32_t>(most));
  };
  for (int i = 0; i < 1000; ++i) {
    PlanRequest request{
        .nodes = draw(4), .gpus_per_node = draw(8), .target_batch = draw(1 << draw(20))};
    if (i % 4 == 0) {
      for (std::int64_t r = 0; r < request.nodes * request.gpus_per_node; ++r) {
        request.speeds.push_back(0.5 + 0.5 * static_cast<double>(r % 3));
      }
    }
    const std::int64_t fixed = draw(1000);
    const std::int64_t limit = draw(1 << draw(20));
    const double power = i % 3 == 0 ? 1 : 0.5 + static_cast<double>(draw(100)) / 100;
    int calls = 0;
    const FindMemoryNeed find = [&](const Plan& plan) -> Result<MemoryNeed> {
      ++calls;
      const auto samples = static_cast<double>(plan.request().micro_batch);
      return MemoryNeed{fixed + static_cast<std::int64_t>(std::pow(samples, power)), limit};
    };
    const MicroBatchChoice choice = Choose(request, find);
    EXPECT_LE(calls, 45) << i;
    EXPECT_EQ(choice.fits, fixed + 1 <= limit) << i;
    if (choice.fits) ExpectLargest(choice, find);
  }
}

// A larger micro-batch that needs less does no harm: what is chosen fits.
TEST(MicroBatch, AcceptsNonMonotonicNeed) {
  const FindMemoryNeed find = [](const Plan& plan) -> Result<MemoryNeed> {
    const std::int64_t size = plan.request().micro_batch;
    return MemoryNeed{size % 5 == 0 ? 200 : 10 * size, 150};
  };
  const MicroBatchChoice choice = Choose({.gpus_per_node = 1, .target_batch = 100}, find);
  ASSERT_TRUE(choice.fits);
  EXPECT_TRUE(find(choice.plan())->fits());
}

TEST(MemoryTable, GoldenText) {
  const MicroBatchChoice choice =
      Choose(Published(), Linear(2'000'000'000, 900'000'000, 9'000'000'000), {.smaller = 2});
  EXPECT_EQ(MemoryTableText(choice, {.flops_per_sample = 6e9, .parameters = 1'000'000},
                            "9278.4 MB (--memory), 278.4 MB stay free"),
            R"(
Micro-batches by the memory of a rank
  limit          9278.4 MB (--memory), 278.4 MB stay free
  micro-batch  micro-steps  recompute           memory    time
           13            1       none       13700.0 MB    1.00  does not fit
            7            2       none        8300.0 MB    1.00  this plan
            5            3       none        6500.0 MB    1.00
            4            4       none        5600.0 MB    1.01
            1           13       none        2900.0 MB    1.02
time: of an update, predicted, relative to one micro-step without recompute.
)");
}

// A sample needs 900 MB, or 200 MB where its blocks are computed again.
MemoryNeed NeedOfBlocks(const Plan& plan, std::int64_t limit) {
  const bool blocks = plan.request().recompute == Recompute::kBlocks;
  return {2'000'000'000 + (blocks ? 200'000'000 : 900'000'000) * plan.request().micro_batch, limit};
}
MicroBatchChoice ChooseWithBlocks(std::int64_t limit, const UpdateCost& cost,
                                  std::size_t smaller = 0, int* calls = nullptr) {
  const auto find = [=](const Plan& plan) -> Result<MemoryNeed> {
    if (calls != nullptr) ++*calls;
    return NeedOfBlocks(plan, limit);
  };
  return Choose(Published(), find, {.smaller = smaller, .recompute = true, .cost = cost});
}
// A second forward takes a third of the time, the micro-steps hardly any.
constexpr UpdateCost kDeep = {
    .flops_per_sample = 6e9, .recomputed_flops_per_sample = 2e9, .parameters = 1'000'000};

TEST(MemoryTable, ShowsBothRecomputeSettings) {
  const MicroBatchChoice choice = ChooseWithBlocks(5'000'000'000, kDeep, 1);
  EXPECT_EQ(MemoryTableText(choice, kDeep, "5000.0 MB (--memory)"),
            R"(
Micro-batches by the memory of a rank
  limit          5000.0 MB (--memory)
  micro-batch  micro-steps  recompute           memory    time
           13            1       none       13700.0 MB    1.00  does not fit
            7            2       none        8300.0 MB    1.00  does not fit
            4            4       none        5600.0 MB    1.01  does not fit
            3            5       none        4700.0 MB    1.01  this plan
            2            7       none        3800.0 MB    1.01
            1           13       none        2900.0 MB    1.02
           13            1     blocks        4600.0 MB    1.33
            7            2     blocks        3400.0 MB    1.33
time: of an update, predicted, relative to one micro-step without recompute.
)");
}

TEST(MicroBatch, RecomputesIfFasterOrNothingElseFits) {
  int calls = 0;
  const MicroBatchChoice all = ChooseWithBlocks(13'700'000'000, kDeep, 0, &calls);
  EXPECT_EQ(all.plan().request().recompute, Recompute::kNone);
  EXPECT_EQ(calls, 1) << "a single micro-step fits: nothing is faster";

  const MicroBatchChoice least = ChooseWithBlocks(2'500'000'000, kDeep);
  EXPECT_TRUE(least.fits);
  EXPECT_EQ(least.plan().request().recompute, Recompute::kBlocks);
  EXPECT_EQ(least.plan().request().micro_batch, 2);

  // Many parameters and few operations: 13 micro-steps cost more than a second forward.
  const UpdateCost wide = {
      .flops_per_sample = 6e6, .recomputed_flops_per_sample = 2e6, .parameters = 1'000'000};
  const MicroBatchChoice faster = ChooseWithBlocks(3'500'000'000, wide);
  EXPECT_EQ(faster.plan().request().recompute, Recompute::kBlocks);
  EXPECT_EQ(faster.plan().request().micro_batch, 7);
  EXPECT_EQ(ChooseWithBlocks(3'500'000'000, kDeep).plan().request().recompute, Recompute::kNone);

  const MicroBatchChoice none = ChooseWithBlocks(2'100'000'000, kDeep);
  EXPECT_FALSE(none.fits);
  EXPECT_EQ(none.plan().memory()->bytes, 2'200'000'000) << "the least that any needs";
}

// Without recompute, where both take the same time: of a job that says nothing about it.
TEST(MicroBatch, RecomputesOnlyIfAllowed) {
  EXPECT_EQ(ChooseWithBlocks(13'000'000'000, {}).plan().request().recompute, Recompute::kNone);
  const auto find = [](const Plan& plan) -> Result<MemoryNeed> {
    return NeedOfBlocks(plan, 2'500'000'000);
  };
  EXPECT_FALSE(Choose(Published(), find).fits);
  PlanRequest blocks = Published();
  blocks.recompute = Recompute::kBlocks;
  EXPECT_EQ(Choose(blocks, find).plan().request().micro_batch, 2);
}

// A small network with many parameters: every micro-step passes over them all.
TEST(MemoryTable, TimeGrowsWithMicroSteps) {
  const UpdateCost cost{.flops_per_sample = 6e6, .parameters = 1'000'000};
  const auto time = [&](std::int64_t micro_batch) {
    PlanRequest request{.gpus_per_node = 1, .micro_batch = micro_batch, .target_batch = 100};
    return RelativeTime(ValueOrThrow(Plan::Make(request)), cost);
  };
  EXPECT_DOUBLE_EQ(time(100), 1);
  // 100 x 6 of the samples and 160 for each pass, in units of 10^6.
  EXPECT_DOUBLE_EQ(time(50), (600.0 + 2 * 160) / (600 + 160));
  EXPECT_DOUBLE_EQ(time(1), (600.0 + 100 * 160) / (600 + 160));
}

}  // namespace
}  // namespace gaccd
