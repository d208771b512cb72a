#include "tests/support/engine_cuda_cases.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <string_view>

#include "daemon/optim/measure.h"
#include "tests/sanitized.h"

namespace gaccd::tests {
namespace {

const OptimizerSpec kPlainSgd{.lr = 0.2, .kind = SgdSpec{}};
const OptimizerSpec kNesterov{.lr = 0.05, .kind = SgdSpec{.momentum = 0.9, .nesterov = true}};
const OptimizerSpec kAdamW{.lr = 0.01, .kind = AdamWSpec{.epsilon = 1e-3}};

// Frozen parameters first and between others; decay and learning rate by group.
OptimizerSpec Grouped(OptimizerSpec optimizer) {
  optimizer.group = {{.match = "fc1.*", .freeze = true},
                     {.match = "fc2.weight", .weight_decay = 0.2, .lr_factor = 0.5},
                     {.match = "fc2.bias", .freeze = true},
                     {.match = "fc3.bias", .weight_decay = 0, .lr_factor = 3}};
  return optimizer;
}

// What a sanitizer sees, which is the host's code: other optimisers, losses and kernels pass there
// through the same calls.
bool IsForSanitizers(const EngineCase& test) {
  constexpr std::string_view kNames[] = {"five_ragged",
                                         "tail",
                                         "masked_texts",
                                         "contrastive",
                                         "contrastive_ema",
                                         "ragged_ranks",
                                         "rank_without_samples",
                                         "tail_without_samples",
                                         "ema",
                                         "batch_norm",
                                         "batch_norm_ghost",
                                         "batch_norm_micro",
                                         "contrastive_without_samples"};
  return std::ranges::find(kNames, test.name) != std::end(kNames);
}

OptimizerSpec Averaged(OptimizerSpec optimizer) {
  optimizer.ema = EmaSpec{0.8};
  return optimizer;
}

}  // namespace

std::vector<EngineCase> MakeCudaCases(int ranks) {
  std::vector<EngineCase> cases;
  if (ranks == 1) {
    cases = {
        {.name = "one_micro_step", .micro = 24, .target = 24},
        {.name = "two_equal", .micro = 8, .target = 16, .optimizer = kAdamW},
        {.name = "five_ragged", .micro = 5, .target = 23, .optimizer = kNesterov},
        {.name = "clipped", .micro = 5, .target = 13, .clip_norm = 0.05},
        {.name = "not_quite_clipped", .micro = 5, .target = 13, .clip_norm = 1e6},
        {.name = "tail", .micro = 5, .target = 13, .tail = 4, .optimizer = kPlainSgd},
        {.name = "squared_error", .micro = 6, .target = 11, .loss = LossKind::kMeanSquaredError},
        {.name = "tokens", .micro = 5, .target = 13, .clip_norm = 0.05, .tokens = 6},
        {.name = "token_weights",
         .micro = 5,
         .target = 13,
         .optimizer = kAdamW,
         .tokens = 6,
         .token_weights = true},
        {.name = "dropout", .micro = 5, .target = 13, .tokens = 6, .dropout = 0.3},
        {.name = "evaluation_of_many", .micro = 5, .target = 41, .updates = 6, .dropout = 0.3},
        {.name = "texts_by_length",
         .micro = 5,
         .target = 13,
         .tail = 4,
         .widths = {12, 3},
         .clip_norm = 0.05,
         .dropout = 0.3,
         .texts = 24,
         .cut = 8},
        {.name = "masked_texts",
         .micro = 5,
         .target = 13,
         .widths = {12},
         .optimizer = kAdamW,
         .texts = 24,
         .cut = 8,
         .masked = true},
        {.name = "contrastive",
         .micro = 5,
         .target = 13,
         .tail = 4,
         .loss = LossKind::kContrastive,
         .optimizer = kAdamW,
         .evaluate = false},
        {.name = "contrastive_of_one_batch",
         .micro = 16,
         .target = 16,
         .loss = LossKind::kContrastive,
         .clip_norm = 0.05,
         .evaluate = false},
        {.name = "other_tensors", .micro = 5, .target = 13, .other_tensors = true},
        {.name = "groups", .micro = 5, .target = 13, .optimizer = Grouped(kAdamW)},
        {.name = "groups_sgd", .micro = 5, .target = 13, .optimizer = Grouped(kNesterov)},
        {.name = "ema", .micro = 5, .target = 13, .optimizer = Averaged(Grouped(kNesterov))},
        {.name = "batch_norm",
         .micro = 5,
         .target = 13,
         .tail = 4,
         .optimizer = kNesterov,
         .stats = BatchStatistics::kWindow},
        {.name = "batch_norm_ghost",
         .micro = 5,
         .target = 13,
         .tail = 4,
         .optimizer = kAdamW,
         .stats = BatchStatistics::kGhost},
        {.name = "batch_norm_micro",
         .micro = 5,
         .target = 13,
         .clip_norm = 0.05,
         .stats = BatchStatistics::kMicro},
        {.name = "batch_norm_frozen", .micro = 5, .target = 13, .stats = BatchStatistics::kFrozen},
        {.name = "contrastive_ema",
         .micro = 5,
         .target = 13,
         .loss = LossKind::kContrastive,
         .optimizer = Averaged(kAdamW),
         .evaluate = false},
    };
  } else {
    const std::int64_t n = ranks;
    cases = {
        {.name = "one_micro_step", .micro = 8, .target = 8 * n},
        {.name = "ragged_ranks", .micro = 9, .target = 8 * n + 1, .optimizer = kAdamW},
        {.name = "five_ragged", .micro = 4, .target = 17 * n + 1, .clip_norm = 0.05},
        {.name = "empty_last", .micro = 1, .target = n + 1, .optimizer = kPlainSgd},
        {.name = "rank_without_samples", .micro = 4, .target = n - 1},
        {.name = "tail_without_samples",
         .micro = 3,
         .target = 5 * n,
         .tail = 1,
         .optimizer = kNesterov},
        {.name = "squared_error",
         .micro = 4,
         .target = 7 * n - 1,
         .loss = LossKind::kMeanSquaredError,
         .optimizer = kAdamW,
         .clip_norm = 0.5},
        {.name = "groups", .micro = 4, .target = 9 * n + 1, .optimizer = Grouped(kAdamW)},
        {.name = "tokens", .micro = 4, .target = 7 * n - 1, .clip_norm = 0.1, .tokens = 6},
        {.name = "dropout", .micro = 4, .target = 7 * n - 1, .dropout = 0.3},
        {.name = "texts_by_length",
         .micro = 2,
         .target = 5 * n - 1,
         .widths = {12, 3},
         .optimizer = kAdamW,
         .texts = 24,
         .cut = 8},
        {.name = "ema", .micro = 4, .target = 9 * n + 1, .optimizer = Averaged(kAdamW)},
        {.name = "contrastive",
         .micro = 3,
         .target = 7 * n - 1,
         .loss = LossKind::kContrastive,
         .optimizer = kAdamW,
         .clip_norm = 0.5,
         .evaluate = false},
        {.name = "batch_norm",
         .micro = 3,
         .target = 5 * n,
         .tail = n - 1,
         .optimizer = kNesterov,
         .stats = BatchStatistics::kWindow},
        {.name = "batch_norm_without_samples",
         .micro = 4,
         .target = n - 1 + (n == 2 ? 0 : 1),
         .stats = BatchStatistics::kWindow},
        {.name = "batch_norm_ghost",
         .micro = 3,
         .target = 7 * n - 1,
         .clip_norm = 0.05,
         .stats = BatchStatistics::kGhost},
        {.name = "batch_norm_micro",  // of two samples each moves the sign of a difference
         .micro = 6,
         .target = 11 * n - 1,
         .stats = BatchStatistics::kMicro},
        {.name = "contrastive_without_samples",
         .micro = 3,
         .target = 5 * n,
         .tail = n - 1,
         .loss = LossKind::kContrastive,
         .evaluate = false},
    };
    for (EngineCase& test : cases) test.ranks = ranks;
  }
  if (kSanitized) std::erase_if(cases, std::not_fn(IsForSanitizers));
  // The third is the first small one where there is a tail. Texts take the stand-in ten times as
  // long.
  for (EngineCase& test : cases) test.updates = test.texts > 0 || kSanitized ? 4 : 8;
  return cases;
}

// The times of an update add up, and no time is counted twice.
void ExpectTimesFit(const EngineRun& run) {
  double sum_s = 0;
  for (const UpdateResult& one : run.results) {
    EXPECT_GT(one.dur_s, 0);
    EXPECT_NEAR(one.dur_s, one.data_s + one.fwd_bwd_s + one.reduce_s + one.opt_s, 1e-9);
    sum_s += one.dur_s;
  }
  EXPECT_LE(sum_s, run.wall_s);
}

void ExpectSame(const EngineRun& found, const EngineRun& expected, double tolerance) {
  ASSERT_EQ(found.results.size(), expected.results.size());
  for (std::size_t u = 0; u < found.results.size(); ++u) {
    const UpdateResult& a = found.results[u];
    const UpdateResult& b = expected.results[u];
    EXPECT_EQ(a.samples, b.samples) << "update " << u + 1;
    EXPECT_NEAR(a.divisor, b.divisor, 1e-12 * b.divisor) << "update " << u + 1;
    EXPECT_LE(std::abs(a.loss - b.loss), tolerance * std::abs(b.loss)) << "update " << u + 1;
    EXPECT_LE(std::abs(a.grad_norm - b.grad_norm), 10 * tolerance * b.grad_norm + 1e-6)
        << "update " << u + 1;
  }
  ExpectTimesFit(found);
  EXPECT_EQ(found.control_words, expected.control_words);
  EXPECT_EQ(found.digest, ComputeDigest(found.parameters));
  EXPECT_LE(Distance(found.parameters, expected.parameters), tolerance);
  EXPECT_LE(Distance(found.state, expected.state), 100 * tolerance);
  EXPECT_EQ(found.optimizer_updates, expected.optimizer_updates);
  EXPECT_EQ(found.evaluation.samples, expected.evaluation.samples);
  EXPECT_NEAR(found.evaluation.divisor, expected.evaluation.divisor,
              1e-12 * expected.evaluation.divisor);
  EXPECT_LE(std::abs(found.evaluation.loss_sum - expected.evaluation.loss_sum),
            tolerance * std::abs(expected.evaluation.loss_sum));
  EXPECT_EQ(found.evaluation.ranks, expected.evaluation.ranks);
  EXPECT_EQ(found.evaluation.best, expected.evaluation.best);
  EXPECT_LE(Distance(found.evaluation.prediction, expected.evaluation.prediction), tolerance);
}

}  // namespace gaccd::tests
