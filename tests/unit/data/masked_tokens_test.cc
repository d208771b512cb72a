// Tokens that are masked: which, how often, and that neither ranks nor micro-batches matter.
#include "daemon/data/masked_tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "daemon/data/index_source.h"
#include "daemon/data/prefetcher.h"
#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

constexpr std::int64_t kTexts = 400;
constexpr std::int64_t kContext = 40;
constexpr std::int32_t kVocabulary = 50;
constexpr std::int32_t kMask = 4;

// The first five tokens of the vocabulary are special; every text begins with one of them.
std::int32_t TokenAt(std::int64_t sample, std::int64_t t) {
  return static_cast<std::int32_t>(t == 0 ? 2 : 5 + (sample * 7 + t * t) % (kVocabulary - 5));
}

class MaskableTexts final : public Dataset {
 public:
  [[nodiscard]] std::int64_t size() const override { return kTexts; }
  [[nodiscard]] const SampleSpec& spec() const override { return spec_; }
  [[nodiscard]] std::int64_t Length(std::int64_t index) const override {
    return index * 11 % kContext + 1;
  }
  void Gather(std::span<const std::int64_t> indices, const BatchView& out) const override {
    const std::int64_t row = out.length > 0 ? out.length : kContext;
    for (std::size_t i = 0; i < indices.size(); ++i) {
      for (std::int64_t t = 0; t < row; ++t) {
        out.tensor<std::int32_t>(0)[static_cast<std::int64_t>(i) * row + t] =
            TokenAt(indices[i], t);
      }
      out.tensor<std::int32_t>(1)[i] = static_cast<std::int32_t>(Length(indices[i]));
    }
  }

 private:
  SampleSpec spec_ = {
      .tensors = {{"tokens", DType::kI32, {kContext}}, {"lengths", DType::kI32, {}}},
      .vocabulary = kVocabulary,
      .cuts = {16, 32}};
};

std::unique_ptr<Dataset> Masked(double probability = 0.15) {
  return MakeMaskedDataset(
      std::make_unique<MaskableTexts>(),
      {.mask_token = kMask, .special_token = {0, 1, 2, 3, 4}, .probability = probability});
}

struct MaskedText {
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> labels;
  bool operator==(const MaskedText&) const = default;
};

// The result of one sample, read together with another one and cut to `length`, up to its own
// length.
MaskedText Read(const Dataset& data, std::int64_t sample, std::uint64_t augmentation_seed,
                std::int64_t length = 0, std::int64_t other = 17) {
  BatchMemory memory(data.spec(), 2);
  BatchView view = memory.view();
  view.augmentation_seed = augmentation_seed;
  view.length = length;
  data.Gather(std::array<std::int64_t, 2>{other, sample}, view);
  const std::int64_t row = length > 0 ? length : kContext;
  const auto of_second = [&](std::size_t tensor) {
    const std::int32_t* values = view.tensor<std::int32_t>(tensor) + row;
    return std::vector<std::int32_t>(values, values + row);
  };
  return {of_second(0), of_second(2)};
}

TEST(MaskedTokensTest, LabelsAreMaskedTokensOnly) {
  const auto data = Masked();
  EXPECT_EQ(data->spec().tensors.back(), (TensorSpec{"labels", DType::kI32, {kContext}}));
  EXPECT_EQ(data->spec().classes, kVocabulary);
  for (std::int64_t sample = 0; sample < kTexts; ++sample) {
    const MaskedText found = Read(*data, sample, 5);
    for (std::int64_t t = 0; t < kContext; ++t) {
      const auto at = static_cast<std::size_t>(t);
      if (found.labels[at] == kIgnoredLabel) {
        EXPECT_EQ(found.tokens[at], TokenAt(sample, t));
      } else {
        EXPECT_EQ(found.labels[at], TokenAt(sample, t));
        EXPECT_GE(found.labels[at], 5) << "a special token";
        EXPECT_LT(t, data->Length(sample)) << "padding";
        EXPECT_LT(found.tokens[at], kVocabulary);
      }
    }
  }
}

TEST(MaskedTokensTest, TextsOfSpecialTokensHaveNoLabel) {
  EXPECT_EQ(CountLabels(*Masked()).unlabelled, kTexts / 40) << "texts of one token";
}

// Within four standard deviations; in shorter texts the one that is masked at least would show.
TEST(MaskedTokensTest, MasksGivenShareAndReplacesEightInTen) {
  const auto data = Masked();
  double seen = 0;
  double masked = 0;
  double masks = 0;
  double same = 0;
  for (std::uint64_t draw = 0; draw < 10; ++draw) {
    for (std::int64_t sample = 0; sample < kTexts; ++sample) {
      if (data->Length(sample) < 31) continue;
      const MaskedText found = Read(*data, sample, draw);
      seen += static_cast<double>(data->Length(sample) - 1);
      for (std::size_t t = 0; t < found.labels.size(); ++t) {
        if (found.labels[t] == kIgnoredLabel) continue;
        ++masked;
        masks += found.tokens[t] == kMask ? 1 : 0;
        same += found.tokens[t] == found.labels[t] ? 1 : 0;
      }
    }
  }
  const auto expect_share = [](double found, double of, double share) {
    EXPECT_NEAR(found / of, share, 4 * std::sqrt(share * (1 - share) / of));
  };
  expect_share(masked, seen, 0.15);
  expect_share(masks, masked, 0.8 + 0.1 / kVocabulary);  // any token may be the mask, or the same
  expect_share(same, masked, 0.1 + 0.1 / kVocabulary);
  double all = 0;
  for (const std::int32_t label : Read(*Masked(1), 39, 0).labels) all += label != kIgnoredLabel;
  EXPECT_EQ(all, Masked()->Length(39) - 1);
}

// A probability so small that no draw is below it; a text of one token has a special one alone.
TEST(MaskedTokensTest, EveryTextHasAMaskedToken) {
  const auto data = Masked(1e-9);
  std::set<std::ptrdiff_t> places;
  for (std::int64_t sample = 0; sample < kTexts; ++sample) {
    const std::vector<std::int32_t> labels = Read(*data, sample, 5).labels;
    const auto most = data->Length(sample) > 1 ? 1 : 0;
    EXPECT_EQ(std::ssize(labels) - std::ranges::count(labels, kIgnoredLabel), most);
    if (most == 0) continue;
    const auto is_label = [](std::int32_t label) { return label != kIgnoredLabel; };
    places.insert(std::ranges::find_if(labels, is_label) - labels.begin());
  }
  EXPECT_GT(places.size(), 20U) << "any of them";
}

TEST(MaskedTokensTest, DrawDependsOnUpdateAndSample) {
  const auto data = Masked();
  for (const std::int64_t sample : {2, 39, 79}) {
    const MaskedText whole = Read(*data, sample, 9);
    EXPECT_EQ(Read(*data, sample, 9, 0, 390), whole) << "other neighbours";
    EXPECT_NE(Read(*data, sample, 10), whole) << "another update";
    MaskedText cut = Read(*data, sample, 9, 32);
    EXPECT_TRUE(std::equal(cut.tokens.begin(), cut.tokens.end(), whole.tokens.begin()));
    EXPECT_TRUE(std::equal(cut.labels.begin(), cut.labels.end(), whole.labels.begin()));
  }
}

using Drawn = std::vector<std::pair<std::int64_t, MaskedText>>;  // by sample

// What all ranks read of an update, with the padding that the shortest batch leaves.
std::vector<Drawn> ReadUpdates(std::uint64_t seed, int ranks, int micro, bool grouped,
                               std::int64_t first_update = 0) {
  const auto data = Masked();
  const auto schedule =
      UpdateSchedule::Make({.dataset_size = kTexts, .batch = 60, .epochs = 2}).value();
  const Plan plan =
      Plan::Make({.gpus_per_node = ranks, .micro_batch = micro, .target_batch = 60}).value();
  std::vector<Drawn> updates(static_cast<std::size_t>(schedule.updates() - first_update));
  for (int rank = 0; rank < ranks; ++rank) {
    auto indices = std::make_unique<TrainIndices>(
        TrainIndices::Make(SampleOrder(seed, kTexts, true), schedule, plan, rank, first_update)
            .value());
    if (grouped) indices->GroupByLength(*data);
    auto batches =
        Prefetcher::Start(*data, std::move(indices),
                          {.cuts = grouped ? data->spec().cuts : std::vector<std::int64_t>()});
    for (std::int64_t u = first_update; u < schedule.updates(); ++u) {
      const std::int64_t steps = plan.ForSamples(schedule.At(u).samples).value().accum_steps();
      for (std::int64_t j = 0; j < steps; ++j) {
        const BatchView& batch = *(*batches)->Next();
        const std::int64_t row = batch.length > 0 ? batch.length : kContext;
        for (std::int64_t i = 0; i < batch.samples; ++i) {
          const std::int64_t length = data->Length(batch.ids[i]);
          const auto of = [&](std::size_t tensor) {
            const std::int32_t* values = batch.tensor<std::int32_t>(tensor) + i * row;
            return std::vector<std::int32_t>(values, values + length);
          };
          updates[static_cast<std::size_t>(u - first_update)].emplace_back(
              batch.ids[i], MaskedText{of(0), of(2)});
        }
      }
    }
  }
  for (Drawn& drawn : updates) {
    std::ranges::sort(drawn, {}, [](const auto& read) { return read.first; });
  }
  return updates;
}

TEST(MaskedTokensTest, IndependentOfRanksMicroBatchesAndRestart) {
  const auto expected = ReadUpdates(1, 1, 60, false);
  EXPECT_EQ(ReadUpdates(1, 3, 7, false), expected);
  EXPECT_EQ(ReadUpdates(1, 2, 8, true), expected);
  const auto resumed = ReadUpdates(1, 3, 5, true, 9);
  EXPECT_EQ(resumed, std::vector(expected.begin() + 9, expected.end()));
  EXPECT_NE(ReadUpdates(2, 1, 60, false), expected);
}

}  // namespace
}  // namespace gaccd
