#include "daemon/selftest/selftest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "collectives/base/strings.h"
#include "daemon/selftest/selftest_job.h"
#include "daemon/selftest/selftest_limits.h"
#include "daemon/selftest/update_mistakes.h"
#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

struct Setting {
  std::int64_t nodes, gpus_per_node, micro_batch, target;
};

class SelftestPlans : public testing::TestWithParam<Setting> {};

// Ragged over ranks, ragged over micro-steps, both, neither, and batches smaller than the world.
INSTANTIATE_TEST_SUITE_P(All, SelftestPlans,
                         testing::Values(Setting{1, 1, 4, 11}, Setting{1, 2, 3, 7},
                                         Setting{1, 4, 8, 33}, Setting{1, 4, 8, 64},
                                         Setting{2, 3, 5, 4}, Setting{1, 8, 1, 3},
                                         Setting{3, 2, 7, 100}));

TEST_P(SelftestPlans, PassesAndDetectsMistakes) {
  const Setting& setting = GetParam();
  const auto cases = ValueOrThrow(RunSelftestCases({.nodes = setting.nodes,
                                                    .gpus_per_node = setting.gpus_per_node,
                                                    .micro_batch = setting.micro_batch,
                                                    .target_batch = setting.target}));
  ASSERT_EQ(cases.size(), 4U);
  for (const SelftestCase& test : cases) {
    SCOPED_TRACE(Name(test.plan.request().rounding));
    EXPECT_LE(test.right, 1e-6);
    if (test.mean_of_means_shows()) {
      EXPECT_GT(test.mean_of_means, 1e-4);
    }
    if (test.several_steps()) {
      EXPECT_GT(test.last_only, 1e-4);
    }
    EXPECT_LE(test.tokens, 1e-6);
    if (test.rank_means_show()) {
      EXPECT_GT(test.rank_means, 1e-5);
    }
    if (test.plan.world() > 1) {
      EXPECT_TRUE(test.rank_means_show());
    }
    EXPECT_TRUE(test.passed());
  }
}

// The check itself must be able to fail.
TEST(SelftestCase, FailsOnAnyDifference) {
  auto plan =
      Plan::Make({.nodes = 30, .gpus_per_node = 8, .micro_batch = 10, .target_batch = 3072});
  ASSERT_TRUE(plan.ok());
  const SelftestCase good{.plan = *plan, .right = 1e-7, .mean_of_means = 1e-2, .last_only = 0.5};
  EXPECT_TRUE(good.passed());
  SelftestCase bad = good;
  bad.right = 1e-5;
  EXPECT_FALSE(bad.passed());
  bad = good;
  bad.mean_of_means = 1e-8;
  EXPECT_FALSE(bad.passed());
  bad = good;
  bad.last_only = 0;
  EXPECT_FALSE(bad.passed());
  bad = good;
  bad.tokens = 1e-5;
  EXPECT_FALSE(bad.passed());
  bad = good;
  bad.rank_means_error = 0.1;
  bad.rank_means = 1e-8;
  EXPECT_FALSE(bad.passed());
  bad = good;
  bad.right = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(bad.passed());
}

// Many micro-steps or ranks: what f32 rounds in their sum is no mistake, and a mistake of 1e-5 in
// the weight of a sample is lost in it.
TEST(SelftestCase, ToleranceGrowsWithMicroStepsAndRanks) {
  const auto plan =
      Plan::Make({.nodes = 2, .gpus_per_node = 2, .micro_batch = 1, .target_batch = 200'001});
  ASSERT_TRUE(plan.ok());
  const SelftestCase test{.plan = *plan, .right = 1.7e-6, .mean_of_means = 1.7e-6, .last_only = 1};
  EXPECT_NEAR(test.tolerance(), 2 * 1.33e-5, 2e-7);
  EXPECT_NEAR(test.mean_of_means_error(), 1.5e-5, 1e-6);
  EXPECT_FALSE(test.mean_of_means_shows());
  EXPECT_TRUE(test.passed());
  EXPECT_THAT(SelftestText(plan->request(), {test}), testing::HasSubstr("1.7e-06 small"));
  EXPECT_THAT(SelftestText(plan->request(), {test}),
              testing::EndsWith("every mistake that has an effect is caught\n"));
  SelftestCase bad = test;
  bad.right = 4e-5;
  EXPECT_FALSE(bad.passed());
}

// 3 ranks take 17 samples as 2 + 2 + 2, 2 + 2 + 2 and 2 + 2 + 1.
Job NormJob(std::int64_t target) {
  Job job;
  job.model = {.layer = {{"fc1", LinearSpec{6, 8, true}},
                         {"bn1", BatchNormSpec{.num_features = 8}},
                         {"relu", ReluSpec{}},
                         {"fc2", LinearSpec{8, 5, true}},
                         {"bn2", BatchNormSpec{.num_features = 5, .momentum = 0.3}},
                         {"fc3", LinearSpec{5, 2, true}}},
               .loss = MeanSquaredErrorSpec{}};
  job.data.train = SyntheticSpec{.samples = 60, .features = 6, .outputs = 2, .seed = 3};
  job.batch = {.target = target, .micro = 2};
  job.optimizer = {.lr = 0.1, .kind = SgdSpec{}};
  return job;
}

JobSelftest SelftestJob(const Job& job, int ranks) {
  const PlanRequest request{.nodes = 1,
                            .gpus_per_node = ranks,
                            .micro_batch = job.batch.micro,
                            .target_batch = *job.batch.target,
                            .bits = job.batch.bits};
  return ValueOrThrow(RunJobSelftest(job, request));
}

TEST(JobSelftest, DetectsEveryBatchNormMistake) {
  const JobSelftest test = SelftestJob(NormJob(17), 3);
  EXPECT_TRUE(test.passed());
  EXPECT_LE(test.right, 1e-6);
  EXPECT_EQ(test.mistakes.size(), std::size(kStatisticsMistakes));
  for (const JobSelftest::Mistake& mistake : test.mistakes) {
    EXPECT_TRUE(mistake.has_effect) << mistake.name;
    EXPECT_GT(mistake.deviation, 1e-3) << mistake.name;
    EXPECT_LT(mistake.deviation, 100) << mistake.name;
  }
  EXPECT_THAT(JobSelftestText(test), testing::HasSubstr("gradient and running statistics of"));
  EXPECT_THAT(JobSelftestText(test), testing::HasSubstr("as threads on the CPU in f32, "));
}

TEST(JobSelftest, CountsOtherBits) {
  Job job = NormJob(17);
  job.batch.bits = Bits::kAnySplit;
  JobSelftest test = SelftestJob(job, 3);
  EXPECT_TRUE(test.passed());
  EXPECT_EQ(test.other_bits, 0);
  EXPECT_GT(test.other_bits_of_this_split, 0);
  test.other_bits = 1;
  EXPECT_FALSE(test.passed());
}

TEST(JobSelftest, BatchNormMistakeMayHaveNoEffect) {
  const auto without_effect = [](const JobSelftest& test) {
    std::vector<std::string> names;
    for (const JobSelftest::Mistake& mistake : test.mistakes) {
      if (mistake.has_effect) continue;
      names.push_back(mistake.name);
      EXPECT_LT(mistake.deviation, test.tolerance()) << mistake.name;
    }
    EXPECT_TRUE(test.passed());
    return names;
  };
  EXPECT_THAT(without_effect(SelftestJob(NormJob(18), 3)),
              testing::ElementsAre("with the planned count"));
  EXPECT_THAT(
      without_effect(SelftestJob(NormJob(17), 1)),
      testing::ElementsAre("statistics of a rank", "gradient of a rank", "added by every rank"));
}

// Towers of linear layers and ReLUs are homogeneous: a common factor of all parameters changes no
// cosine.
TEST(JobSelftest, DetectsStaleFeaturesOfLinearTowers) {
  Job job = NormJob(7);
  const auto tower = [](const char* input, std::int64_t in) {
    return TowerSpec{input, {{"fc", LinearSpec{in, 8, true}}, {"relu", ReluSpec{}}}};
  };
  job.model = {.loss = ContrastiveSpec{},
               .architecture = DualEncoderSpec{
                   .a = tower("features", 6), .b = tower("targets", 2), .width = 4}};
  const JobSelftest test = SelftestJob(job, 3);
  EXPECT_TRUE(test.passed()) << JobSelftestText(test);
}

TEST(JobSelftest, RefusesGradientOfZero) {
  Job job = NormJob(7);
  job.model = {.loss = ContrastiveSpec{},
               .architecture = DualEncoderSpec{.a = {"features", {{"fc", LinearSpec{6, 4, true}}}},
                                               .b = {"targets", {{"fc", LinearSpec{2, 4, true}}}},
                                               .width = 3}};
  EXPECT_THAT(
      RunJobSelftest(job, {.nodes = 1, .gpus_per_node = 2, .micro_batch = 2, .target_batch = 1}),
      IsError(ErrorKind::kConfig, "nothing to compare", "its 1 sample"));
}

TEST(SelftestLimits, RunsAsManyRanksAsFit) {
  const SelftestSize size{.ranks = 240, .micro_batch = 10, .samples = 3072};
  EXPECT_EQ(MaxRanks(size, {}), 240);
  EXPECT_EQ(MaxRanks(size, {.mappings = 800}), 100);
  EXPECT_EQ(MaxRanks(size, {.bytes = 0}), 0);
  const std::int64_t half = MaxRanks(size, {.bytes = 130'000'000});
  EXPECT_GT(half, 100);
  EXPECT_LT(half, 240);
  EXPECT_EQ(MaxRanks({.ranks = half + 1}, {.bytes = 64'000'000}), 0);  // the program alone
}

TEST(SelftestLimits, RefusesTooManyRanks) {
  for (const SelftestLimits& limits :
       {SelftestLimits{.bytes = 10'000'000'000}, SelftestLimits{.mappings = 65'530}}) {
    for (const std::int64_t ranks : {std::int64_t{100'000}, std::int64_t{1} << 62}) {
      const Status status = CheckSelftestLimits({.ranks = ranks}, limits);
      EXPECT_THAT(status, HasKind(ErrorKind::kOs));
      const std::string most = StrCat("can run ", MaxRanks({.ranks = ranks}, limits), " ranks");
      EXPECT_THAT(status, HasMessage(testing::HasSubstr(most)));
    }
  }
}

TEST(SelftestLimits, SaysWhatALargeTestNeeds) {
  EXPECT_EQ(SelftestNeeds({.ranks = 240, .micro_batch = 10, .samples = 3072}), "");
  EXPECT_THAT(SelftestNeeds({.ranks = 8000, .micro_batch = 10, .samples = 102'400}),
              testing::AllOf(testing::HasSubstr("8000 ranks"),
                             testing::ContainsRegex("about 7[0-9]{3}.* MB of memory")));
}

TEST(SelftestLimits, DescribesThisMachine) {
  const SelftestLimits limits = ReadSelftestLimits();
  EXPECT_GT(limits.bytes, 1 << 20);
  EXPECT_LT(limits.bytes, std::int64_t{1} << 50);  // so it was found
  EXPECT_GT(limits.mappings, 1000);
  EXPECT_TRUE(CheckSelftestLimits({.ranks = 4}, limits).ok());
}

}  // namespace
}  // namespace gaccd
