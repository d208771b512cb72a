#include "daemon/data/bad_records.h"

#include <filesystem>
#include <limits>
#include <set>

#include "collectives/base/strings.h"
#include "tests/support/file_util.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/data/dataset_util.h"

namespace gaccd {
namespace {

constexpr int kSamples = 200;
constexpr int kWidth = 3;

// Sample s has the features s, s, s and the label s mod 10.
class BadRecordsTest : public testing::Test {
 protected:
  NpySpec Source(const std::set<int>& bad_features, const std::set<int>& bad_labels) {
    std::vector<float> features;
    std::vector<std::int32_t> labels;
    for (int s = 0; s < kSamples; ++s) {
      for (int f = 0; f < kWidth; ++f) features.push_back(static_cast<float>(s));
      if (bad_features.contains(s)) features.back() = std::numeric_limits<float>::quiet_NaN();
      labels.push_back(bad_labels.contains(s) ? 10 : s % 10);
    }
    return {folder_.Write("features", NpyHeader(NpyDictionary("<f4", "(200, 3)")) +
                                          Raw(std::span<const float>(features))),
            folder_.Write("labels", NpyHeader(NpyDictionary("<i4", "(200,)")) +
                                        Raw(std::span<const std::int32_t>(labels))),
            10};
  }

  TempFolder folder_;
};

std::vector<std::int64_t> AllSamples() {
  std::vector<std::int64_t> all(kSamples);
  for (std::size_t s = 0; s < all.size(); ++s) all[s] = static_cast<std::int64_t>(s);
  return all;
}

TEST_F(BadRecordsTest, RecordsAreReplaced) {
  const std::set<int> bad = {0, 7, 64, 130, 199};
  const NpySpec source = Source({7, 64, 199}, {0, 7, 130});
  const auto open = [&](std::uint64_t seed) {
    return OpenDataset(source, {}, {.policy = OnBadRecord::kSkip, .quota = 5, .seed = seed});
  };
  const auto dataset = ValueOrThrow(open(1));
  EXPECT_EQ(dataset->size(), kSamples);
  ASSERT_EQ(dataset->bad_records().size(), bad.size());
  const Batch batch = Gather(*dataset, AllSamples());
  const auto* record = dataset->bad_records().data();
  for (int s = 0; s < kSamples; ++s) {
    auto expected = static_cast<std::int64_t>(s);
    if (bad.contains(s)) {
      EXPECT_EQ(record->sample, s);
      EXPECT_THAT(record->why, HasSubstr(StrCat("sample ", s)));
      expected = record++->replacement;
      EXPECT_FALSE(bad.contains(static_cast<int>(expected)));
    }
    for (int f = 0; f < kWidth; ++f) {
      EXPECT_EQ(batch.features[static_cast<std::size_t>(s * kWidth + f)],
                static_cast<float>(expected));
    }
    EXPECT_EQ(batch.labels[static_cast<std::size_t>(s)], expected % 10);
  }
  // The same from run to run; another seed draws others.
  const auto again = open(1);
  const auto other = open(2);
  int same = 0;
  for (std::size_t i = 0; i < bad.size(); ++i) {
    const std::int64_t first = dataset->bad_records()[i].replacement;
    EXPECT_EQ((*again)->bad_records()[i].replacement, first);
    same += (*other)->bad_records()[i].replacement == first ? 1 : 0;
  }
  EXPECT_LT(same, 5);
}

TEST_F(BadRecordsTest, QuotaCountsRecords) {
  const NpySpec source = Source({7, 64, 199}, {0, 7, 130});
  for (const std::int64_t quota : {0, 1, 4}) {
    EXPECT_THAT(OpenDataset(source, {}, {.policy = OnBadRecord::kSkip, .quota = quota}),
                IsError(ErrorKind::kData, StrCat("at most ", quota, " may")))
        << quota;
  }
}

TEST_F(BadRecordsTest, RecordsAreLeftOut) {
  const std::set<int> bad = {0, 7, 8, 64, 199};
  const auto dataset =
      ValueOrThrow(OpenDataset(Source({7, 8, 199}, {0, 64}), {},
                               {.policy = OnBadRecord::kSkip, .quota = 5, .leave_out = true}));
  ASSERT_EQ(dataset->size(), kSamples - 5);
  std::vector<std::int64_t> all = AllSamples();
  all.resize(kSamples - 5);
  const Batch batch = Gather(*dataset, all);
  std::size_t at = 0;
  for (int s = 0; s < kSamples; ++s) {
    if (bad.contains(s)) continue;
    EXPECT_EQ(batch.features[at * kWidth], static_cast<float>(s));
    EXPECT_EQ(batch.labels[at++], s % 10);
  }
  ASSERT_EQ(dataset->bad_records().size(), 5U);
  EXPECT_EQ(dataset->bad_records()[4].sample, 199);
  EXPECT_EQ(dataset->bad_records()[4].replacement, BadRecord::kLeftOut);
}

// Replaced where every batch must stay exact, left out where a mean is taken.
TEST_F(BadRecordsTest, TrainAndEvalDataShareQuota) {
  const NpySpec train = Source({7, 64}, {});
  std::filesystem::rename(train.features, folder_.Path("train"));
  const NpySpec eval = Source({3}, {5});
  Job job;
  job.data = {.train = NpySpec{folder_.Path("train"), train.targets, 10}, .eval = eval};
  BadRecordRules rules{.policy = OnBadRecord::kSkip, .quota = 4};
  // Both read the labels of the second call, of which one is damaged.
  const auto opened =
      ValueOrThrow(OpenTrainingData(job, {.policy = OnBadRecord::kSkip, .quota = 5}));
  EXPECT_EQ(opened.train->size(), kSamples);
  EXPECT_EQ(opened.train->bad_records().size(), 3U);
  EXPECT_EQ(opened.eval->size(), kSamples - 2);
  EXPECT_THAT(OpenTrainingData(job, rules),
              HasMessage(HasSubstr("at most 4 may be skipped, found one more: ")));
  rules.policy = OnBadRecord::kStop;
  EXPECT_FALSE(OpenTrainingData(job, rules).ok());
  job.data.eval.reset();
  EXPECT_EQ(OpenTrainingData(job, {.policy = OnBadRecord::kSkip, .quota = 3})->eval, nullptr);
}

TEST_F(BadRecordsTest, StopsByDefault) {
  EXPECT_THAT(Refused(ErrorKind::kData, Source({7}, {})), HasSubstr("sample 7, column 2"));
  EXPECT_THAT(Refused(ErrorKind::kData, Source({}, {9})), HasSubstr("found 10 for sample 9"));
}

TEST_F(BadRecordsTest, RefusesDataWithoutGoodRecords) {
  std::set<int> all;
  for (int s = 0; s < kSamples; ++s) all.insert(s);
  const BadRecordRules rules{.policy = OnBadRecord::kSkip, .quota = 1000};
  EXPECT_THAT(OpenDataset(Source(all, {}), {}, rules),
              HasMessage(HasSubstr("all 200 records are damaged")));
  all.erase(150);
  const auto one = ValueOrThrow(OpenDataset(Source(all, {}), {}, rules));
  for (const float feature : Gather(*one, AllSamples()).features) EXPECT_EQ(feature, 150);
}

TEST_F(BadRecordsTest, DoesNotWrapIntactData) {
  const auto dataset =
      ValueOrThrow(OpenDataset(Source({}, {}), {}, {.policy = OnBadRecord::kSkip, .quota = 10}));
  EXPECT_TRUE(dataset->bad_records().empty());
}

}  // namespace
}  // namespace gaccd
