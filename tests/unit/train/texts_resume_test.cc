// Trainings on texts that are grouped by length, stopped and resumed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "tests/support/engine_runs.h"
#include "tests/support/file_util.h"
#include "tests/support/resume_fixture.h"
#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

using tests::Distance;
using tests::Place;
using tests::ResumeTest;

// 60 texts of up to 40 tokens in 5 updates, grouped by length.
class TextsTest : public ResumeTest {
 protected:
  static constexpr std::int32_t kSamples = 60;
  static constexpr std::int32_t kLength = 40;

  std::string Write(const char* name, const std::vector<std::int32_t>& values) {
    const std::string width = std::ssize(values) > kSamples ? StrCat(", ", kLength) : ",";
    const std::string shape = StrCat("(", kSamples, width, ")");
    std::ofstream(folder_ + name) << NpyHeader(NpyDictionary("<i4", shape))
                                  << Raw(std::span(values));
    return folder_ + name;
  }
  Job TextJob() {
    std::vector<std::int32_t> tokens;
    std::vector<std::int32_t> lengths;
    std::vector<std::int32_t> labels;
    for (std::int32_t i = 0; i < kSamples; ++i) {
      for (std::int32_t t = 0; t < kLength; ++t) tokens.push_back((i * 7 + t * t) % 30);
      lengths.push_back(i * i * 11 % kLength + 1);
      labels.push_back(i % 3);
    }
    Job job;
    job.name = "texts";
    job.model.architecture = BertSpec{.vocabulary = 30,
                                      .context = kLength,
                                      .segments = 1,
                                      .layers = 1,
                                      .heads = 2,
                                      .width = 8,
                                      .classes = 3,
                                      .dropout = 0.1};
    job.data.train = TokensSpec{.tokens = Write("/tokens", tokens),
                                .lengths = Write("/lengths", lengths),
                                .labels = Write("/labels", labels),
                                .vocabulary = 30,
                                .classes = 3};
    job.batch.target = 14;
    job.batch.micro = 3;
    job.optimizer = {.lr = 0.01, .kind = AdamWSpec{}};
    job.epochs = 1;
    return job;
  }
};

// The texts of update 2 have special tokens alone, of which none is masked.
TEST_F(TextsTest, SkipsUpdateWithoutLabelAlsoAfterResume) {
  Job job = TextJob();
  std::vector<std::int32_t> tokens;
  for (std::int32_t i = 0; i < kSamples; ++i) {
    for (std::int32_t t = 0; t < kLength; ++t) {
      tokens.push_back(i / 14 == 1 || t == 0 ? 2 : 5 + (i * 7 + t * t) % 25);
    }
  }
  job.data.train =
      TokensSpec{.tokens = Write("/masked", tokens),
                 .vocabulary = 30,
                 .masked = MaskedTokensSpec{.mask_token = 4, .special_token = {0, 1, 2, 3, 4}}};
  job.data.shuffle = false;
  std::get<BertSpec>(job.model.architecture).head = BertHead::kMaskedLm;
  std::get<BertSpec>(job.model.architecture).classes = BertSpec().classes;
  const auto plain = ValueOrThrow(Train(job, 2, 1, "never"));
  EXPECT_EQ(plain.summary.updates, 5);
  EXPECT_EQ(plain.summary.unlabelled, 1);
  EXPECT_EQ(plain.summary.skipped, 0);
  EXPECT_EQ(plain.summary.samples, kSamples - 14) << "that changed the parameters";
  for (const std::int64_t step : {1, 2, 3}) {
    const auto resumed = ValueOrThrow(Train(job, 2, 0, CheckpointPath(step)));
    EXPECT_EQ(resumed.weights, plain.weights) << "AdamW counts the updates that it did";
    EXPECT_EQ(resumed.summary.unlabelled, step == 1 ? 1 : 0);
  }
}

TEST_F(TextsTest, ContinuesInsideUpdateUnlessGroupedDifferently) {
  const Job job = TextJob();
  const auto plain = ValueOrThrow(Train(job, 2, 0, "never"));
  for (const Place& stop : {Place{1, 1}, Place{3, 2}}) {
    std::filesystem::remove_all(ckpt());
    ASSERT_THAT(Train(job, 2, 100, "never", stop), HasKind(ErrorKind::kTempFail));
    const auto resumed = ValueOrThrow(Train(job, 2, 0, "auto"));
    EXPECT_EQ(resumed.weights, plain.weights);
    EXPECT_THAT(resumed.warnings, Not(HasSubstr("restarts")));
    Job whole = job;
    whole.batch.group_by_length = false;
    const auto other = ValueOrThrow(Train(whole, 2, 0, "auto"));
    EXPECT_THAT(other.warnings, HasSubstr("grouping by length on, this job has off"));
    EXPECT_LT(Distance(other.weights, plain.weights), 1e-5);
    EXPECT_EQ(other.summary.samples, 60);
  }
}

TEST_F(TextsTest, AnySplitHasOtherBitsIfGroupedDifferently) {
  Job job = TextJob();
  job.batch.bits = Bits::kAnySplit;
  job.data.eval = job.data.train;
  const auto plain = ValueOrThrow(Train(job, 2, 2, "never"));
  const auto same = ValueOrThrow(Train(job, 3, 0, CheckpointPath(2)));
  EXPECT_EQ(same.weights, plain.weights);
  EXPECT_EQ(same.evals, plain.evals);
  EXPECT_THAT(same.warnings, Not(HasSubstr("--bits=any-split")));
  job.batch.group_by_length = false;
  const auto other = ValueOrThrow(Train(job, 3, 0, CheckpointPath(2)));
  EXPECT_NE(other.weights, plain.weights);
  EXPECT_THAT(other.warnings, HasSubstr(", grouped by length: the run has other bits"));
}

}  // namespace
}  // namespace gaccd
