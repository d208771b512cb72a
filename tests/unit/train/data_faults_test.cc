// Data that is damaged or changes under a training: what the evaluation counts, and that all ranks
// end alike.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "collectives/base/strings.h"
#include "tests/support/file_util.h"
#include "tests/support/rank_training.h"
#include "tests/support/status_matchers.h"
#include "tests/support/step_events.h"

namespace gaccd {
namespace {

constexpr std::int64_t kDataFeatures = 6;

class DataFaultsTest : public ::testing::Test {
 protected:
  // Sample s of `samples`: NaN for those of `bad`; those of `left_out` are not there.
  NpySpec Source(const std::string& name, std::int64_t samples,
                 const std::set<std::int64_t>& bad = {},
                 const std::set<std::int64_t>& left_out = {}) {
    std::vector<float> features;
    std::vector<float> targets;
    for (std::int64_t s = 0; s < samples; ++s) {
      if (left_out.contains(s)) continue;
      for (std::int64_t f = 0; f < kDataFeatures; ++f) {
        features.push_back(std::sin(static_cast<float>(s * kDataFeatures + f)));
      }
      if (bad.contains(s)) features.back() = std::numeric_limits<float>::quiet_NaN();
      targets.push_back(std::cos(static_cast<float>(s)));
    }
    return {.features = folder_.Write(name + ".x", NpyFloats(features, kDataFeatures)),
            .targets = folder_.Write(name + ".y", NpyFloats(targets, 1))};
  }

  static Job MakeJob(const NpySpec& train, const NpySpec& eval) {
    Job job;
    job.name = "data-faults";
    job.model = {.layer = {{"fc", LinearSpec{kDataFeatures, 1, true}}},
                 .loss = MeanSquaredErrorSpec{}};
    job.data.train = train;
    job.data.eval = eval;
    job.batch.target = 12;
    job.batch.micro = 4;
    job.optimizer = {.lr = 0.1, .kind = SgdSpec{}};
    job.epochs = 2;
    return job;
  }

  // What every rank ends with. `before` runs on rank 0, before the first update.
  static std::vector<Status> Run(const Job& job, int ranks, std::int64_t quota,
                                 const std::string& run_dir,
                                 const std::function<void()>& before = nullptr) {
    const tests::Training training{.ranks = ranks,
                                   .run_dir = run_dir,
                                   .bad_records = {.policy = OnBadRecord::kSkip, .quota = quota},
                                   .before = [&](int rank, Trainer&) {
                                     if (before && rank == 0) before();
                                     return Status::Ok();
                                   }};
    return tests::Train(job, training).status;
  }

  // "samples loss" of every evaluation.
  static std::vector<std::string> Evaluations(const std::string& run_dir) {
    std::vector<std::string> found = tests::EventValues(run_dir, "eval", "samples");
    const std::vector<std::string> losses = tests::EventValues(run_dir, "eval", "value");
    for (std::size_t i = 0; i < found.size(); ++i) found[i] += " " + losses[i].substr(0, 6);
    return found;
  }

  TempFolder folder_;
};

TEST_F(DataFaultsTest, EvaluationIsMeanOfRemainingRecords) {
  const NpySpec train = Source("train", 36);
  const Job whole = MakeJob(train, Source("whole", 20, {}, {0, 11}));
  const Job damaged = MakeJob(train, Source("damaged", 20, {0, 11}));
  std::vector<std::string> expected;
  for (const int ranks : {1, 3}) {
    const std::string run = folder_.Path(StrCat("run", ranks));
    for (const Status& status : Run(damaged, ranks, 2, run)) {
      ASSERT_TRUE(status.ok()) << status.message();
    }
    if (expected.empty()) {
      ASSERT_TRUE(Run(whole, 1, 0, folder_.Path("whole")).front().ok());
      expected = Evaluations(folder_.Path("whole"));
      ASSERT_EQ(expected.size(), 2U);
      EXPECT_THAT(expected[0], ::testing::StartsWith("18 "));
    }
    EXPECT_EQ(Evaluations(run), expected);
  }
  for (const Status& status : Run(damaged, 2, 1, folder_.Path("refused"))) {
    EXPECT_THAT(status, HasKind(ErrorKind::kData));
  }
}

TEST_F(DataFaultsTest, ChangedFileEndsAllRanksAfterEpoch) {
  for (const bool eval : {false, true}) {
    const NpySpec train = Source("train", 36);
    const NpySpec other = Source("eval", 20);
    const std::string path = eval ? other.targets : train.features;
    const auto statuses = Run(MakeJob(train, other), 3, 0, folder_.Path(StrCat("run", eval)),
                              [&] { std::ofstream(path, std::ios::app) << "more"; });
    for (const Status& status : statuses) {
      EXPECT_THAT(status, IsError(ErrorKind::kData, path + ": was changed while in use"));
    }
    EXPECT_TRUE(Evaluations(folder_.Path(StrCat("run", eval))).empty());
  }
}

// The run ends inside of the first epoch.
TEST_F(DataFaultsTest, ChangedFileEndsAllRanksAfterLastUpdate) {
  Job job = MakeJob(Source("train", 36), Source("eval", 20));
  job.epochs = 0;
  job.max_updates = 2;
  const std::string path = std::get<NpySpec>(job.data.train).features;
  const auto change = [&] { std::ofstream(path, std::ios::app) << "more"; };
  for (const Status& status : Run(job, 3, 0, folder_.Path("run"), change)) {
    EXPECT_THAT(status, IsError(ErrorKind::kData, path + ": was changed while in use"));
  }
}

}  // namespace
}  // namespace gaccd
