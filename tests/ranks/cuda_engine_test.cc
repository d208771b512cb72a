// Engines on GPUs, several ranks with other samples each, over the stand-ins of the GPU and of
// NCCL: against engines on CPUs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>

#include "collectives/base/strings.h"
#include "daemon/device/cuda/cuda_context.h"
#include "daemon/device/cuda/device_memory.h"
#include "daemon/train/update.h"
#include "tests/ranks/cuda_engine_ranks.h"
#include "tests/sanitized.h"
#include "tests/support/status_matchers.h"

namespace gaccd::tests {
namespace {

std::vector<EngineCase> AllCases() {
  std::vector<EngineCase> all = MakeCudaCases(3);
  if (!kSanitized) std::ranges::copy(MakeCudaCases(2), std::back_inserter(all));
  for (EngineCase& test : all) test.name = StrCat(test.name, "_", test.ranks);
  return all;
}

void ExpectSameOnAllRanks(const EngineCase& test, const std::vector<RankOutcome>& found,
                          double tolerance) {
  const auto expected = RunCpuRanks(test);
  for (std::size_t rank = 0; rank < found.size(); ++rank) {
    SCOPED_TRACE(rank);
    ASSERT_TRUE(expected[rank].ok()) << expected[rank].status().message();
    ASSERT_TRUE(found[rank].run.ok()) << found[rank].run.status().message();
    ExpectSame(*found[rank].run, *expected[rank], tolerance);
    // Replicas never drift apart.
    EXPECT_EQ(Distance(found[rank].run->parameters, found[0].run->parameters), 0);
  }
}

class CudaEngineRanks : public ::testing::TestWithParam<EngineCase> {
 protected:
  void SetUp() override { ResetGpus(3); }
  void TearDown() override {
    for (const int device : {-1, 0, 1, 2}) EXPECT_EQ(standin::LiveBytes(device), 0) << device;
  }
};
INSTANTIATE_TEST_SUITE_P(All, CudaEngineRanks, ::testing::ValuesIn(AllCases()),
                         [](const auto& test) { return test.param.name; });

TEST_P(CudaEngineRanks, EqualCpuRanks) {
  ExpectSameOnAllRanks(GetParam(), RunCudaRanks(GetParam()), kSame);
}

// Each gradient is a message of its own and travels while the backward still runs.
TEST_P(CudaEngineRanks, ManyBucketsWithDelays) {
  for (std::uint64_t seed = 1; seed <= (kSanitized ? 1U : 2U); ++seed) {
    standin::SetDelays(seed, 50);
    const auto found = RunCudaRanks(GetParam(), {.choice = {.bucket_elements = 1}});
    standin::SetDelays(0, 0);
    ExpectSameOnAllRanks(GetParam(), found, kSame);
  }
}

TEST_P(CudaEngineRanks, SharingOneGpu) {
  ExpectSameOnAllRanks(GetParam(), RunCudaRanks(GetParam(), {.one_gpu = true}), kSame);
}

// What one GPU can run of what several do: reductions during the backward pass, in many buckets.
const EngineChoice kForced{.always_overlap = true, .bucket_elements = 1};

TEST_P(CudaEngineRanks, SharingOneGpuWithOverlap) {
  standin::SetDelays(3, 50);
  const auto found = RunCudaRanks(GetParam(), {.choice = kForced, .one_gpu = true});
  standin::SetDelays(0, 0);
  const auto updates = static_cast<int>(found[0].run.ok() ? found[0].run->results.size() : 0);
  EXPECT_GT(standin::CountNccl()["ncclAllReduce"], 2 * updates * GetParam().ranks) << "one bucket";
  ExpectSameOnAllRanks(GetParam(), found, kSame);
}

// Collective functions in the model, also on ranks without samples: what is trained is what is
// trained without them.
class CudaEngineCollectives : public CudaEngineRanks {
 protected:
  static EngineCase With() {
    EngineCase test = GetParam();
    test.updates = 4;
    test.evaluate = false;
    test.collectives = true;
    return test;
  }
  static EngineCase Without() {
    EngineCase test = With();
    test.collectives = false;
    return test;
  }
};
std::vector<EngineCase> CasesOfFeatures() {
  std::vector<EngineCase> cases = AllCases();
  std::erase_if(cases, [](const EngineCase& test) {
    return test.tokens > 0 || test.texts > 0 || test.dropout > 0 ||
           test.loss == LossKind::kContrastive || test.stats.has_value();
  });
  return cases;
}
INSTANTIATE_TEST_SUITE_P(All, CudaEngineCollectives, ::testing::ValuesIn(CasesOfFeatures()),
                         [](const auto& test) { return test.param.name; });

TEST_P(CudaEngineCollectives, OnCpus) {
  const auto found = RunCpuRanks(With());
  const auto expected = RunCpuRanks(Without());
  for (std::size_t rank = 0; rank < found.size(); ++rank) {
    ASSERT_TRUE(found[rank].ok()) << found[rank].status().message();
    ExpectSame(*found[rank], *expected[rank], kSame);
  }
}

TEST_P(CudaEngineCollectives, InSegmentedGraphs) {
  standin::SetDelays(5, 50);
  const auto found = RunCudaRanks(With(), {.choice = {.bucket_elements = 1}});
  standin::SetDelays(0, 0);
  EXPECT_GT(standin::CountNccl()["ncclAllGather"], 0);
  ExpectSameOnAllRanks(Without(), found, kSame);
}

TEST_P(CudaEngineCollectives, SharingOneGpu) {
  ExpectSameOnAllRanks(Without(), RunCudaRanks(With(), {.one_gpu = true}), kSame);
}

TEST(CudaEngineOneRank, WithCollectives) {
  EngineCase test{.name = "one", .micro = 5, .target = 13, .updates = 3, .evaluate = false};
  ResetGpus(1);
  EngineCase with = test;
  with.collectives = true;
  const EngineChoice cuda{.device = Device::kCuda, .cublaslt = &standin::StandInCublasLt()};
  for (const EngineChoice& choice : {EngineChoice{}, cuda}) {
    const auto found = ValueOrThrow(RunEngine(*MakeSingle(), with, choice));
    ExpectSame(found, *RunEngine(*MakeSingle(), test, {}), kSame);
  }
}

TEST(CudaEngineOneRank, WithOverlap) {
  for (const EngineCase& test : MakeCudaCases(1)) {
    SCOPED_TRACE(test.name);
    ResetGpus(1);
    standin::SetDelays(4, 50);
    const auto found = RunCudaRanks(test, {.choice = kForced});
    standin::SetDelays(0, 0);
    EXPECT_GT(standin::CountNccl()["ncclAllReduce"], 0);
    ExpectSameOnAllRanks(test, found, kSame);
  }
}

// In the last micro-step of an update, and only there, the products of the backward pass know that
// a reduction takes some multiprocessors; those of the forward pass are over by then.
TEST(CudaEngineProducts, LeavesMultiprocessorsToReduction) {
  const EngineCase test{.name = "two", .ranks = 2, .micro = 5, .target = 30, .updates = 4};
  constexpr std::int64_t kLayers = 3;
  constexpr std::int64_t kBackward = 2 * kLayers - 1;  // no gradient of the features
  for (const bool overlap : {true, false}) {
    SCOPED_TRACE(overlap);
    ResetGpus(2);
    standin::SetCublasLt();
    std::atomic<std::int64_t> before = 0;
    std::atomic<int> ready = 0;
    const EngineRunOptions options{.before_updates = [&] {
      if (++ready == 2) {
        before = standin::CountCublasLt().ran_limited;
        ++ready;
      }
      while (ready < 3) std::this_thread::yield();
    }};
    EngineRanks ranks{.choice = {.reduction_multiprocessors = 1}, .one_gpu = !overlap};
    if (overlap) ranks.options = [&](int) { return options; };
    ExpectSameOnAllRanks(test, RunCudaRanks(test, ranks), kSame);
    const std::int64_t expected = overlap ? test.ranks * test.updates * kBackward : 0;
    EXPECT_EQ(standin::CountCublasLt().ran_limited - before, expected);
  }
}

// Every group of NCCL starts a thread.
TEST(CudaEngineGroups, LossesAndCountsAreReducedWithLastBucket) {
  const EngineCase test{.name = "two", .ranks = 2, .micro = 5, .target = 30, .updates = 4};
  for (const auto& [bucket_elements, groups] :
       {std::pair(std::size_t{1} << 20, 1), {std::size_t{1}, 6}}) {
    ResetGpus(2);
    std::atomic<int> before = 0;
    std::atomic<int> ready = 0;
    EngineRanks ranks{.choice = {.bucket_elements = bucket_elements}};
    ranks.options = [&](int) {
      return EngineRunOptions{.before_updates = [&] {
        if (++ready == 2) {
          before = standin::CountNccl()["ncclGroupStart"];
          ++ready;
        }
        while (ready < 3) std::this_thread::yield();
      }};
    };
    ExpectSameOnAllRanks(test, RunCudaRanks(test, ranks), kSame);
    EXPECT_EQ(standin::CountNccl()["ncclGroupStart"] - before,
              groups * static_cast<int>(test.updates) * test.ranks);
  }
}

// The memory check counts what NCCL allocates at its first collective.
TEST(CudaEngineMemory, CountsNcclChannels) {
  constexpr std::size_t kMiB = std::size_t{1} << 20;
  constexpr std::size_t kRoom = 40 * kMiB;  // for the job, which needs less than one, and NCCL
  const EngineCase test{.name = "two", .ranks = 2, .micro = 5, .target = 30, .updates = 1};
  for (const std::size_t channels : {std::size_t{0}, kRoom / 2, kRoom}) {
    standin::ResetNccl();
    standin::Reset({.devices = 2,
                    .memory_bytes = CudaContext::kWorkspaceBytes + kRoom +
                                    static_cast<std::size_t>(DeviceMemory::kReserveBytes)});
    standin::ResetNccl({.channel_bytes = channels});
    for (const RankOutcome& outcome : RunCudaRanks(test)) {
      EXPECT_EQ(outcome.run.ok(), channels < kRoom) << channels;
      if (outcome.run.ok()) continue;
      EXPECT_THAT(outcome.run, IsError(ErrorKind::kConfig, "does not fit on the GPU"));
    }
  }
  ResetGpus(1);
}

class CudaEnginesTest : public CudaEngineRanks {};
INSTANTIATE_TEST_SUITE_P(
    Two, CudaEnginesTest,
    ::testing::Values(EngineCase{
        .name = "two_ranks", .ranks = 2, .micro = 5, .target = 33, .updates = 6}));

TEST_P(CudaEnginesTest, HostsDoNotWaitInsideUpdate) {
  // Counters are shared by all ranks, so none may begin or end while another is inside.
  std::atomic<int> ready = 0;
  std::atomic<int> done = 0;
  std::atomic<std::int64_t> before = 0;
  std::atomic<std::int64_t> after = 0;
  const auto meet = [](std::atomic<int>& count) {
    ++count;
    while (count < 2) std::this_thread::yield();
  };
  EngineRunOptions options;
  options.before_updates = [&] {
    meet(ready);
    before = standin::Count().host_waits;
  };
  options.after_updates = [&] {
    after = standin::Count().host_waits;
    meet(done);
  };
  EngineRanks ranks;
  ranks.choice.bucket_elements = 1;
  ranks.options = [&](int) { return options; };
  const auto outcomes = RunCudaRanks(GetParam(), ranks);
  for (const RankOutcome& outcome : outcomes) {
    ASSERT_TRUE(outcome.run.ok()) << outcome.run.status().message();
  }
  EXPECT_EQ(after, before);
}

// Only one rank has the sample with the NaN; all stop at the same update and keep what they had.
TEST_P(CudaEnginesTest, NanOnOneRankStopsAllRanks) {
  EngineCase test = GetParam();
  test.poisoned = 50;
  std::mutex mutex;
  std::vector<std::vector<float>> left;
  std::vector<std::int64_t> updates;
  const EngineRunOptions options{
      .failed = [&](const Status&, std::span<const float> parameters, std::int64_t done) {
        const std::lock_guard lock(mutex);
        left.emplace_back(parameters.begin(), parameters.end());
        updates.push_back(done);
      }};
  for (const auto& run : RunCpuRanks(test, {.options = [&](int) { return options; }}))
    EXPECT_FALSE(run.ok());
  for (const RankOutcome& outcome : RunCudaRanks(test, {.options = [&](int) { return options; }})) {
    EXPECT_THAT(outcome.run, HasKind(ErrorKind::kNoRequeue));
  }
  ASSERT_EQ(left.size(), 4U);
  for (std::size_t i = 1; i < left.size(); ++i) {
    EXPECT_LE(Distance(left[i], left[0]), kSame);
    EXPECT_EQ(updates[i], updates[0]);
  }
  EXPECT_EQ(Distance(left[3], left[2]), 0);
}

// Rank 1 loses a micro-batch in update 3: every rank names the counts of all.
TEST_P(CudaEnginesTest, LostMicroBatchIsReportedOnEveryRank) {
  const auto lose = [](int rank) -> EngineRunOptions {
    if (rank != 1) return {};
    auto updates = std::make_shared<int>(0);
    return {.update = [updates](Engine& engine, Prefetcher& batches, const Plan& plan,
                                const UpdateSettings& settings) {
      const bool loses = ++*updates == 3;
      return RunUpdate(engine, batches, PlainAccumulation(plan), settings,
                       {.on_progress = {},
                        .should_stop = {},
                        .is_dropped = [loses](std::int64_t step) { return loses && step == 1; }});
    }};
  };
  for (const RankOutcome& outcome : RunCudaRanks(GetParam(), {.options = lose})) {
    EXPECT_THAT(outcome.run,
                IsError(ErrorKind::kInternal, "the plan has 33 samples", "rank 0: 16, rank 1: 13"));
  }
}

}  // namespace
}  // namespace gaccd::tests
