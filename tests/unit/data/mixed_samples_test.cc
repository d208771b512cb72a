// Samples that are mixed: with which, how, and that neither ranks nor micro-batches matter.
#include "daemon/data/mixed_samples.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <map>
#include <set>

#include "daemon/data/index_source.h"
#include "daemon/data/prefetcher.h"
#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

using testing::HasSubstr;

constexpr std::int64_t kImages = 53;
constexpr std::int64_t kRow = 2 * 3 * 4;

float FeatureValue(std::int64_t sample, std::int64_t epoch, std::int64_t i) {
  return static_cast<float>(1000 * epoch + sample * sample + i * (sample % 7));
}
float SampleWeight(std::int64_t sample) { return static_cast<float>(sample % 4) * 0.3F; }
std::int32_t SampleLabel(std::int64_t sample) { return static_cast<std::int32_t>(sample % 5); }

// Other values in every epoch, as images have.
class MixableImages final : public Dataset {
 public:
  explicit MixableImages(bool weighted) {
    if (weighted) spec_.tensors.push_back({"weights", DType::kF32, {}});
  }
  [[nodiscard]] std::int64_t size() const override { return kImages; }
  [[nodiscard]] const SampleSpec& spec() const override { return spec_; }
  void Gather(std::span<const std::int64_t> indices, const BatchView& out) const override {
    for (std::size_t i = 0; i < indices.size(); ++i) {
      for (std::int64_t v = 0; v < kRow; ++v) {
        out.tensor<float>(0)[static_cast<std::int64_t>(i) * kRow + v] =
            FeatureValue(indices[i], out.run.RowEpoch(i), v);
      }
      out.tensor<std::int32_t>(1)[i] = SampleLabel(indices[i]);
      if (out.tensors.size() > 2) out.tensor<float>(2)[i] = SampleWeight(indices[i]);
    }
  }

 private:
  SampleSpec spec_ = LabelledSample({2, 3, 4}, 5);
};

struct Mixing {
  std::optional<double> mixup;
  std::optional<double> cutmix;
  std::int64_t group = 8;
};

DataSpec MakeDataSpec(const Mixing& mixing) {
  DataSpec data;
  if (mixing.mixup) data.mixup = MixupSpec{.alpha = *mixing.mixup};
  if (mixing.cutmix) data.cutmix = CutmixSpec{.alpha = *mixing.cutmix};
  data.mix_group = mixing.group;
  return data;
}

std::unique_ptr<Dataset> Mixed(const Mixing& mixing, bool weighted = false,
                               std::uint64_t seed = 1) {
  return ValueOrThrow(MixSamples(std::make_unique<MixableImages>(weighted), MakeDataSpec(mixing),
                                 SampleOrder(seed, kImages, true)));
}

TEST(MixedSamplesTest, NeedsMemoryForSamplesAndPartners) {
  const std::int64_t one = SampleBytes(MixableImages(true).spec());
  EXPECT_EQ(Mixed({.mixup = 1}, true)->gather_bytes(7), 2 * 7 * one);
}

struct MixedRow {
  std::vector<float> features;
  std::array<std::int32_t, 2> labels{};
  std::array<float, 2> weights{};
  bool operator==(const MixedRow&) const = default;
};

struct World {
  std::int64_t ranks;
  std::int64_t micro;
  LastCycle last_cycle = LastCycle::kCarry;
  std::int64_t first_update = 0;
  std::uint64_t seed = 1;
};

constexpr std::int64_t kBatch = 21;

// What all ranks read in two epochs, by (update, position).
using MixedRun = std::map<std::pair<std::int64_t, std::int64_t>, std::pair<std::int64_t, MixedRow>>;

MixedRun ReadRun(const Dataset& data, const World& world) {
  const auto schedule = ValueOrThrow(UpdateSchedule::Make(
      {.dataset_size = kImages, .batch = kBatch, .epochs = 2, .last_cycle = world.last_cycle}));
  const Plan plan = ValueOrThrow(Plan::Make({.nodes = 1,
                                             .gpus_per_node = world.ranks,
                                             .micro_batch = world.micro,
                                             .target_batch = kBatch}));
  MixedRun run;
  for (std::int64_t rank = 0; rank < world.ranks; ++rank) {
    auto batches = ValueOrThrow(Prefetcher::Start(
        data,
        std::make_unique<TrainIndices>(ValueOrThrow(TrainIndices::Make(
            SampleOrder(world.seed, kImages, true), schedule, plan, rank, world.first_update)))));
    for (std::int64_t u = world.first_update; u < schedule.updates(); ++u) {
      const std::int64_t steps =
          ValueOrThrow(plan.ForSamples(schedule.At(u).samples)).accum_steps();
      for (std::int64_t step = 0; step < steps; ++step) {
        const BatchView& batch = *batches->Next();
        const std::size_t added = batch.tensors.size() - 2;
        for (std::int64_t i = 0; i < batch.samples; ++i) {
          const float* features = batch.tensor<float>(0) + i * kRow;
          const auto* labels = batch.tensor<std::int32_t>(added) + 2 * i;
          const float* weights = batch.tensor<float>(added + 1) + 2 * i;
          const bool is_new = run.try_emplace({u, batch.position + i}, batch.ids[i],
                                              MixedRow{{features, features + kRow},
                                                       {labels[0], labels[1]},
                                                       {weights[0], weights[1]}})
                                  .second;
          EXPECT_TRUE(is_new);
        }
      }
    }
  }
  return run;
}

TEST(MixedSamplesTest, IndependentOfRanksMicroBatchesAndRestart) {
  for (const Mixing& mixing : {Mixing{.mixup = 0.4}, Mixing{.cutmix = 1}, Mixing{0.4, 1, 5}}) {
    const auto data = Mixed(mixing);
    const MixedRun run = ReadRun(*data, {.ranks = 1, .micro = 21});
    EXPECT_EQ(run.size(), 2U * kImages);
    for (const World& world : {World{1, 4}, World{3, 2}, World{5, 1}, World{7, 3}, World{2, 10}}) {
      EXPECT_EQ(ReadRun(*data, world), run);
    }
    const MixedRun resumed = ReadRun(*data, {.ranks = 3, .micro = 3, .first_update = 2});
    EXPECT_EQ(resumed, MixedRun(run.lower_bound({2, 0}), run.end()));
    EXPECT_NE(ReadRun(*Mixed(mixing, false, 2), {.ranks = 1, .micro = 21, .seed = 2}), run);
  }
}

// The partners of an update of the run, by their values: lambda is known from the weights.
TEST(MixedSamplesTest, MixupAddsSampleOfSameGroup) {
  for (const LastCycle last_cycle : {LastCycle::kUpdate, LastCycle::kCarry}) {
    const MixedRun run =
        ReadRun(*Mixed({.mixup = 1}), {.ranks = 3, .micro = 2, .last_cycle = last_cycle});
    std::set<std::pair<std::int64_t, std::int64_t>> partners;
    std::int64_t crossing = 0;
    for (const auto& [at, row] : run) {
      const auto& [sample, mixed] = row;
      const std::int64_t first = at.second / 8 * 8;
      const bool alone = !run.contains({at.first, first + 1});
      const float lambda = mixed.weights[0];
      EXPECT_EQ(lambda + mixed.weights[1], 1);
      EXPECT_TRUE(!alone || lambda == 1);
      std::set<std::int64_t> found;
      for (std::int64_t q = first; q < first + 8 && run.contains({at.first, q}); ++q) {
        if (q == at.second && !alone) continue;
        const std::int64_t other = run.at({at.first, q}).first;
        const auto epoch_of = [&](std::int64_t position) {
          const std::int64_t place =
              last_cycle == LastCycle::kCarry
                  ? at.first * kBatch + position
                  : at.first / 3 * kImages + at.first % 3 * kBatch + position;
          return place / kImages;
        };
        bool same = mixed.labels == std::array{SampleLabel(sample), SampleLabel(other)};
        for (std::int64_t v = 0; v < kRow; ++v) {
          const float expected = lambda * FeatureValue(sample, epoch_of(at.second), v) +
                                 (1 - lambda) * FeatureValue(other, epoch_of(q), v);
          same = same && mixed.features[static_cast<std::size_t>(v)] == expected;
        }
        if (!same) continue;
        found.insert(q);
        crossing += epoch_of(q) != epoch_of(at.second) ? 1 : 0;
      }
      ASSERT_EQ(found.size(), 1U) << at.first << " " << at.second;
      const bool is_new = partners.insert({at.first, *found.begin()}).second;
      EXPECT_TRUE(is_new) << "a partner twice";
    }
    EXPECT_EQ(crossing > 0, last_cycle == LastCycle::kCarry);
  }
}

TEST(MixedSamplesTest, CutmixReplacesBoxAndLambdaIsRemainingShare) {
  const MixedRun run = ReadRun(*Mixed({.cutmix = 1, .group = 4}), {.ranks = 2, .micro = 4});
  std::set<float> lambdas;
  for (const auto& [at, row] : run) {
    const auto& [sample, mixed] = row;
    const std::int64_t epoch = (at.first * kBatch + at.second) / kImages;
    int own = 0;
    for (std::int64_t v = 0; v < kRow; ++v) {
      own += mixed.features[static_cast<std::size_t>(v)] == FeatureValue(sample, epoch, v) ? 1 : 0;
    }
    EXPECT_NEAR(mixed.weights[0], static_cast<double>(own) / kRow, 0.05) << at.second;
    EXPECT_EQ(mixed.weights[0] + mixed.weights[1], 1);
    lambdas.insert(mixed.weights[0]);
  }
  EXPECT_GE(lambdas.size(), 3U);
}

TEST(MixedSamplesTest, LabelWeightsSumToSampleWeight) {
  const MixedRun run = ReadRun(*Mixed({.mixup = 0.7}, /*weighted=*/true), {.ranks = 2, .micro = 3});
  for (const auto& [at, row] : run) {
    const auto& [sample, mixed] = row;
    const double sum = double{mixed.weights[0]} + double{mixed.weights[1]};
    EXPECT_EQ(sum, SampleWeight(sample));
    EXPECT_GE(std::min(mixed.weights[0], mixed.weights[1]), 0);
  }
}

TEST(MixedSamplesTest, DoesNotMixSamplesOutsideRuns) {
  const auto data = Mixed({.mixup = 1, .cutmix = 1}, /*weighted=*/true);
  EXPECT_EQ(Describe(data->spec()),
            "features f32 [2, 3, 4], labels i32 [], weights f32 [], mixed_labels i32 [2], "
            "mixed_weights f32 [2], 5 classes");
  BatchMemory memory(data->spec(), 3);
  const BatchView view = memory.view();
  data->Gather(std::array<std::int64_t, 3>{9, 4, 30}, view);
  for (std::size_t i = 0; i < 3; ++i) {
    const std::int64_t sample = std::array<std::int64_t, 3>{9, 4, 30}[i];
    EXPECT_EQ(view.tensor<float>(0)[i * kRow + 5], FeatureValue(sample, 0, 5));
    EXPECT_EQ(view.tensor<std::int32_t>(1)[i], SampleLabel(sample));
    EXPECT_EQ(view.tensor<float>(2)[i], SampleWeight(sample));
    EXPECT_EQ(view.tensor<float>(4)[2 * i], SampleWeight(sample));
    EXPECT_EQ(view.tensor<float>(4)[2 * i + 1], 0);
  }
}

TEST(MixedSamplesTest, LambdaIsBetaRoundedToExactMultiple) {
  for (const double alpha : {0.1, 0.4, 1.0, 3.0}) {
    const DataSpec data = MakeDataSpec({.mixup = alpha});
    constexpr int kDraws = 4000;
    double sum = 0;
    double squares = 0;
    for (std::uint64_t key = 0; key < kDraws; ++key) {
      const GroupMix mix = DrawGroupMix(data, key, 2, 1, 1);
      EXPECT_EQ(mix.lambda * 0x1p24F, std::trunc(mix.lambda * 0x1p24F));
      sum += double{mix.lambda};
      squares += std::pow(double{mix.lambda} - 0.5, 2);
    }
    const double variance = 1 / (4 * (2 * alpha + 1));  // at most 1 / 4, and of squares 1 / 16
    EXPECT_NEAR(sum / kDraws, 0.5, 4 * std::sqrt(variance / kDraws)) << alpha;
    EXPECT_NEAR(squares / kDraws, variance, 4 * 0.125 / std::sqrt(kDraws)) << alpha;
  }
}

TEST(MixedSamplesTest, PartnersFormOneCycle) {
  const DataSpec data = MakeDataSpec({.mixup = 1, .cutmix = 1});
  std::set<std::vector<std::int64_t>> different;
  int cuts = 0;
  for (std::uint64_t key = 0; key < 200; ++key) {
    const GroupMix mix = DrawGroupMix(data, key, 7, 9, 12);
    std::int64_t at = 0;
    std::set<std::int64_t> seen;
    while (seen.insert(at).second) at = mix.partners[static_cast<std::size_t>(at)];
    EXPECT_EQ(seen.size(), 7U);
    different.insert(mix.partners);
    if (!mix.box) continue;
    ++cuts;
    const Box& box = *mix.box;
    EXPECT_TRUE(box.top >= 0 && box.left >= 0 && box.top + box.height <= 9 &&
                box.left + box.width <= 12);
  }
  EXPECT_NEAR(cuts, 100, 30);
  EXPECT_GT(different.size(), 150U);
  EXPECT_EQ(DrawGroupMix(data, 1, 1, 9, 12).lambda, 1);
}

class Other final : public Dataset {
 public:
  explicit Other(SampleSpec spec) : spec_(std::move(spec)) {}
  [[nodiscard]] std::int64_t size() const override { return 1; }
  [[nodiscard]] const SampleSpec& spec() const override { return spec_; }
  void Gather(std::span<const std::int64_t> /*indices*/, const BatchView& /*out*/) const override {}

 private:
  SampleSpec spec_;
};

TEST(MixedSamplesTest, RefusesDataThatCannotBeMixed) {
  const auto mix = [](SampleSpec spec, const Mixing& mixing) {
    return MixSamples(std::make_unique<Other>(std::move(spec)), MakeDataSpec(mixing),
                      SampleOrder(1, 1, true));
  };
  EXPECT_THAT(mix(TargetSample({4}, 2), {.mixup = 1}),
              IsError(ErrorKind::kConfig,
                      "data.mixup: expected features with one label each, found samples of "
                      "features f32 [4], targets f32 [2]"));
  EXPECT_THAT(mix(LabelledSample({784}, 10), {.mixup = 1, .cutmix = 1}),
              IsError(ErrorKind::kConfig,
                      "data.cutmix: expected images, [height, width] or [channels, height, width], "
                      "found features [784]"));
  EXPECT_TRUE(mix(LabelledSample({28, 28}, 10), {.cutmix = 1}).ok());
}

}  // namespace
}  // namespace gaccd
