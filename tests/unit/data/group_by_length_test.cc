// Samples of similar length in one micro-batch, which is cut to the longest of them: what a rank
// takes in an update stays.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "daemon/data/formats/tokens.h"
#include "daemon/data/index_source.h"
#include "daemon/data/prefetcher.h"
#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

using testing::ElementsAreArray;

// Sample i has (37 i + 11) % 50 + 1 tokens, which are all i.
class TextDataset final : public Dataset {
 public:
  explicit TextDataset(std::int64_t size) : size_(size) {}
  [[nodiscard]] std::int64_t size() const override { return size_; }
  [[nodiscard]] const SampleSpec& spec() const override { return spec_; }
  [[nodiscard]] std::int64_t Length(std::int64_t index) const override {
    return (37 * index + 11) % 50 + 1;
  }
  void Gather(std::span<const std::int64_t> indices, const BatchView& out) const override {
    const std::int64_t length = out.length > 0 ? out.length : 50;
    for (std::size_t i = 0; i < indices.size(); ++i) {
      std::fill_n(out.tensor<std::int32_t>(0) + static_cast<std::int64_t>(i) * length, length,
                  static_cast<std::int32_t>(indices[i]));
    }
  }

 private:
  std::int64_t size_;
  SampleSpec spec_ = {.tensors = {{"tokens", DType::kI32, {50}}}, .cuts = {16, 32, 48}};
};

using Batches = std::vector<std::vector<std::int64_t>>;

Batches DrawnFrom(IndexSource& source) {
  Batches drawn;
  std::vector<std::int64_t> batch(static_cast<std::size_t>(source.max_samples()));
  for (std::int64_t n = source.Next(batch); n != IndexSource::kEnd; n = source.Next(batch)) {
    drawn.emplace_back(batch.begin(), batch.begin() + n);
  }
  return drawn;
}

std::vector<std::size_t> GetBatchSizes(const Batches& batches) {
  std::vector<std::size_t> sizes;
  for (const auto& batch : batches) sizes.push_back(batch.size());
  return sizes;
}

// Of `steps` micro-batches from `first` on.
std::vector<std::int64_t> Together(const Batches& batches, std::size_t first, std::size_t steps) {
  std::vector<std::int64_t> samples;
  for (std::size_t j = first; j < first + steps; ++j) {
    samples.insert(samples.end(), batches[j].begin(), batches[j].end());
  }
  return samples;
}

std::vector<std::int64_t> SampleLengths(const Dataset& data,
                                        const std::vector<std::int64_t>& samples) {
  std::vector<std::int64_t> lengths;
  for (const std::int64_t sample : samples) lengths.push_back(data.Length(sample));
  return lengths;
}

TrainIndices MakeIndices(const UpdateSchedule& schedule, const Plan& plan, std::int64_t rank,
                         std::int64_t first_update, int passes) {
  const SampleOrder order(3, schedule.request().dataset_size, true);
  return TrainIndices::Make(order, schedule, plan, rank, first_update, passes).value();
}

TEST(GroupByLengthTest, KeepsSamplesOfRankAndUpdate) {
  for (const auto& [size, batch, ranks, micro] :
       {std::tuple{103, 17, 1, 5}, {103, 17, 3, 2}, {240, 24, 2, 12}, {60, 7, 3, 1}}) {
    SCOPED_TRACE(testing::Message() << size << " " << batch << " " << ranks << " " << micro);
    const TextDataset data(size);
    const auto schedule =
        UpdateSchedule::Make({.dataset_size = size, .batch = batch, .epochs = 2}).value();
    const Plan plan =
        Plan::Make({.gpus_per_node = ranks, .micro_batch = micro, .target_batch = batch}).value();
    for (int rank = 0; rank < ranks; ++rank) {
      TrainIndices plain = MakeIndices(schedule, plan, rank, 0, 1);
      TrainIndices grouping = MakeIndices(schedule, plan, rank, 0, 1);
      grouping.GroupByLength(data);
      const Batches expected = DrawnFrom(plain);
      const Batches found = DrawnFrom(grouping);
      EXPECT_EQ(GetBatchSizes(found), GetBatchSizes(expected));
      std::size_t at = 0;
      for (std::int64_t u = 0; u < schedule.updates(); ++u) {
        const auto steps =
            static_cast<std::size_t>(plan.ForSamples(schedule.At(u).samples).value().accum_steps());
        const auto samples = Together(found, at, steps);
        EXPECT_THAT(samples, testing::UnorderedElementsAreArray(Together(expected, at, steps)));
        EXPECT_TRUE(std::ranges::is_sorted(SampleLengths(data, samples)));
        at += steps;
      }
      EXPECT_EQ(at, found.size());
    }
  }
}

TEST(GroupByLengthTest, MicroBatchesAreSameOnAnyRanks) {
  const TextDataset data(1030);
  const auto schedule = UpdateSchedule::Make({.dataset_size = 1030, .batch = 200}).value();
  const auto draw = [&](int ranks, bool grouped) {
    const Plan plan = Plan::Make({.gpus_per_node = ranks,
                                  .micro_batch = 6,
                                  .target_batch = 200,
                                  .bits = Bits::kAnySplit})
                          .value();
    std::vector<Batches> updates(static_cast<std::size_t>(schedule.updates()));
    double most = 0;  // padded tokens of a rank in the first update
    double all = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      TrainIndices indices = MakeIndices(schedule, plan, rank, 0, 1);
      if (grouped) indices.GroupByLength(data);
      const Batches drawn = DrawnFrom(indices);
      std::size_t at = 0;
      double tokens = 0;
      for (std::size_t u = 0; u < updates.size(); ++u) {
        const Plan own = plan.ForSamples(schedule.At(static_cast<std::int64_t>(u)).samples).value();
        for (std::int64_t step = 0; step < own.accum_steps(); ++step, ++at) {
          if (drawn[at].empty()) continue;
          updates[u].push_back(drawn[at]);
          const double length =
              static_cast<double>(std::ranges::max(SampleLengths(data, drawn[at])));
          if (u == 0) tokens += length * static_cast<double>(drawn[at].size());
        }
      }
      most = std::max(most, tokens);
      all += tokens;
    }
    return std::tuple(updates, all, most * ranks / all);
  };
  const auto [expected, tokens, alone] = draw(1, true);
  const auto [plain, padded, same] = draw(1, false);
  EXPECT_LT(tokens, 0.7 * padded);
  for (std::size_t u = 0; u < expected.size(); ++u) {
    EXPECT_THAT(Together(expected[u], 0, expected[u].size()),
                testing::UnorderedElementsAreArray(Together(plain[u], 0, plain[u].size())));
  }
  for (const int ranks : {2, 3, 7, 40}) {
    const auto [found, unused, imbalance] = draw(ranks, true);
    EXPECT_EQ(found, expected) << ranks;
    EXPECT_LT(imbalance, ranks < 7 ? 1.15 : 2.5) << ranks;
  }
}

TEST(GroupByLengthTest, MicroBatchesAreSameInEveryPassAndStart) {
  const TextDataset data(103);
  const auto schedule = UpdateSchedule::Make({.dataset_size = 103, .batch = 17}).value();
  const Plan plan = Plan::Make({.gpus_per_node = 2, .micro_batch = 3, .target_batch = 17}).value();
  const auto drawn = [&](std::int64_t first_update, int passes) {
    TrainIndices indices = MakeIndices(schedule, plan, 1, first_update, passes);
    indices.GroupByLength(data);
    return DrawnFrom(indices);
  };
  const Batches once = drawn(0, 1);
  const auto steps = static_cast<std::size_t>(plan.accum_steps());
  const Batches twice = drawn(0, 2);
  for (std::size_t j = 0; j < steps; ++j) {
    EXPECT_EQ(twice[j], once[j]);
    EXPECT_EQ(twice[steps + j], once[j]);
  }
  EXPECT_THAT(drawn(2, 1), ElementsAreArray(once.begin() + 2 * plan.accum_steps(), once.end()));
}

TEST(GroupByLengthTest, OrdersEvaluationShardByLength) {
  const TextDataset data(61);
  std::vector<std::int64_t> seen;
  for (int rank = 0; rank < 3; ++rank) {
    const EvalShard shard = MakeEvalShard(61, rank, 3);
    EvalIndices plain(shard, 8);
    EvalIndices grouping(shard, 8);
    grouping.GroupByLength(data);
    const Batches found = DrawnFrom(grouping);
    EXPECT_EQ(GetBatchSizes(found), GetBatchSizes(DrawnFrom(plain)));
    const auto samples = Together(found, 0, found.size());
    EXPECT_TRUE(std::ranges::is_sorted(SampleLengths(data, samples)));
    seen.insert(seen.end(), samples.begin(), samples.end());
  }
  std::ranges::sort(seen);
  for (std::int64_t i = 0; i < 61; ++i) EXPECT_EQ(seen[static_cast<std::size_t>(i)], i);
  EvalIndices none({.first = 0, .count = 0}, 8);
  none.GroupByLength(data);
  EXPECT_THAT(DrawnFrom(none), IsEmpty());
}

TEST(GroupByLengthTest, CutsMicroBatchToSmallestFittingLength) {
  const TextDataset data(61);
  for (const std::vector<std::int64_t>& cuts : {std::vector<std::int64_t>{16, 32, 48}, {20}, {}}) {
    auto indices = std::make_unique<EvalIndices>(EvalShard{.first = 0, .count = 61}, 3);
    indices->GroupByLength(data);
    auto prefetcher = ValueOrThrow(Prefetcher::Start(data, std::move(indices), {.cuts = cuts}));
    std::map<std::int64_t, int> seen;
    while (const BatchView* batch = prefetcher->Next()) {
      std::int64_t longest = 0;
      for (std::int64_t i = 0; i < batch->samples; ++i) {
        longest = std::max(longest, data.Length(batch->ids[i]));
      }
      std::int64_t expected = 0;
      for (const std::int64_t cut : cuts) {
        if (expected == 0 && longest <= cut) expected = cut;
      }
      EXPECT_EQ(batch->length, expected);
      ++seen[batch->length];
      const std::int64_t row = expected > 0 ? expected : 50;
      for (std::int64_t i = 0; i < batch->samples * row; ++i) {
        ASSERT_EQ(batch->tensor<std::int32_t>(0)[i], batch->ids[i / row]);
      }
    }
    EXPECT_EQ(seen.size(), cuts.size() + 1) << "some are longer than all of them";
  }
}

Array Integers(const std::vector<std::int32_t>& values, Shape shape, std::string name) {
  Array array;
  array.type = StoredType::kI32;
  array.shape = std::move(shape);
  array.data = std::as_bytes(std::span(values));
  array.name = std::move(name);
  return array;
}

// Token t of sample i is 100 i + t.
class CutTokensTest : public testing::Test {
 protected:
  CutTokensTest() {
    for (std::int32_t i = 0; i < 4; ++i) {
      for (std::int32_t t = 0; t < 40; ++t) {
        tokens_.push_back(100 * i + t);
        segments_.push_back(t % 2);
      }
    }
  }
  std::unique_ptr<Dataset> Opened(const BadRecordRules& rules = {}) const {
    return MakeTokenDataset({.tokens = Integers(tokens_, {4, 40}, "tokens"),
                             .lengths = Integers(lengths_, {4}, "lengths"),
                             .segments = Integers(segments_, {4, 40}, "segments"),
                             .labels = Integers(labels_, {4}, "labels"),
                             .weights = {}},
                            {.vocabulary = 400, .classes = 2}, rules)
        .value();
  }
  std::vector<std::int32_t> tokens_;
  std::vector<std::int32_t> segments_;
  std::vector<std::int32_t> lengths_ = {3, 40, 16, 17};
  std::vector<std::int32_t> labels_ = {1, 0, 1, 0};
};

TEST_F(CutTokensTest, RowsAreSamplePrefixes) {
  const auto data = Opened();
  EXPECT_THAT(data->spec().cuts, ElementsAre(16, 32));
  EXPECT_EQ(data->Length(1), 40);
  BatchMemory memory(data->spec(), 3);
  BatchView view = memory.view();
  view.length = 16;
  data->Gather(std::vector<std::int64_t>{2, 0, 2}, view);
  for (std::int32_t i = 0; i < 3; ++i) {
    for (std::int32_t t = 0; t < 16; ++t) {
      EXPECT_EQ(view.tensor<std::int32_t>(0)[16 * i + t], (i == 1 ? 0 : 200) + t);
      EXPECT_EQ(view.tensor<std::int32_t>(2)[16 * i + t], t % 2);
    }
    EXPECT_EQ(view.tensor<std::int32_t>(1)[i], i == 1 ? 3 : 16);
    EXPECT_EQ(view.tensor<std::int32_t>(3)[i], 1);
  }
}

TEST_F(CutTokensTest, ReplacementSampleHasItsOwnLength) {
  labels_[1] = 7;
  const auto data = Opened({.policy = OnBadRecord::kSkip, .quota = 1});
  ASSERT_EQ(data->bad_records().size(), 1U);
  const std::int64_t other = data->bad_records()[0].replacement;
  EXPECT_EQ(data->Length(1), lengths_[static_cast<std::size_t>(other)]);
  constexpr std::int32_t kRows = 150;  // more than are looked up at once
  BatchMemory memory(data->spec(), kRows);
  BatchView view = memory.view();
  view.length = 32;
  std::vector<std::int64_t> samples(kRows, 3);
  samples[100] = 1;
  data->Gather(samples, view);
  for (std::int32_t i = 0; i < kRows; ++i) {
    for (std::int32_t t = 0; t < 32; ++t) {
      ASSERT_EQ(view.tensor<std::int32_t>(0)[32 * i + t], 100 * (i == 100 ? other : 3) + t);
    }
  }
  const auto rest = Opened({.policy = OnBadRecord::kSkip, .quota = 1, .leave_out = true});
  EXPECT_EQ(rest->Length(1), 16);
}

TEST_F(CutTokensTest, DoesNotCutShortTexts) {
  const auto spec = [](std::int64_t length) {
    const std::vector<std::int32_t> tokens(static_cast<std::size_t>(length));
    const std::vector<std::int32_t> lengths{1};
    return MakeTokenDataset({.tokens = Integers(tokens, {1, length}, "tokens"),
                             .lengths = Integers(lengths, {1}, "lengths"),
                             .segments = {},
                             .labels = {},
                             .weights = {}},
                            {.vocabulary = 1})
        .value()
        ->spec();
  };
  EXPECT_THAT(spec(16).cuts, IsEmpty());
  EXPECT_THAT(spec(17).cuts, ElementsAre(16));
  EXPECT_THAT(spec(128).cuts, ElementsAre(16, 32, 48, 64, 80, 96, 112));
  EXPECT_THAT(spec(512).cuts, ElementsAre(64, 128, 192, 256, 320, 384, 448));
  EXPECT_THAT(spec(300).cuts, ElementsAre(48, 96, 144, 192, 240, 288));
}

}  // namespace
}  // namespace gaccd
