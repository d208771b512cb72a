// Bits::kAnySplit: the same bits on any number of ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "daemon/device/cpu/onednn.h"
#include "tests/sanitized.h"
#include "tests/support/engine_ranks.h"
#include "tests/support/status_matchers.h"

namespace gaccd::tests {
namespace {

// 45 samples in 7 micro-batches of 6 or 7; the smaller updates have 16 in 3, so that ranks are
// without samples.
EngineCase AnySplit(std::string name) {
  return {.name = std::move(name),
          .micro = 7,
          .target = 45,
          .bits = Bits::kAnySplit,
          .updates = 7,
          .tail = 16,
          .clip_norm = 0.5,
          .evaluate = false};
}

std::vector<EngineCase> AnySplitCases() {
  std::vector<EngineCase> cases;
  cases.reserve(16);  // add() returns references
  const auto add = [&cases](const char* name) -> EngineCase& {
    return cases.emplace_back(AnySplit(name));
  };
  add("plain").clip_norm = 0;
  add("wide").widths = {12, 256, 256, 5};  // packed by ranks with enough micro-steps
  EngineCase& dropout = add("dropout_adamw_averages");
  dropout.dropout = 0.2;
  dropout.optimizer = {.lr = 0.01, .kind = AdamWSpec{}, .ema = EmaSpec{0.9}};
  add("window").stats = BatchStatistics::kWindow;
  add("ghost").stats = BatchStatistics::kGhost;
  EngineCase& tokens = add("weighted_tokens");
  tokens.tokens = 6;
  tokens.token_weights = true;
  EngineCase& texts = add("texts_of_several_lengths");
  texts.texts = 12;
  texts.cut = 4;
  texts.widths = {8, 8, 5};
  texts.dropout = 0.1;
  EngineCase& recompute = add("masked_texts_recomputed");
  recompute = texts;
  recompute.name = "masked_texts_recomputed";
  recompute.masked = true;
  recompute.recompute = Recompute::kBlocks;
  if (DetectCpuBf16() != CpuBf16::kNone) add("bf16").numerics.precision = Precision::kBF16;
  return cases;
}

// With statistics of micro-batches, which without kAnySplit are others.
std::vector<EngineCase> WithMicroStatistics(std::vector<EngineCase> cases) {
  cases.push_back(AnySplit("micro"));
  cases.back().stats = BatchStatistics::kMicro;
  return cases;
}

std::vector<EngineRun> RunOn(EngineCase test, int ranks) {
  test.ranks = ranks;
  std::vector<EngineRun> runs;
  for (auto& run : RunCpuRanks(test)) runs.push_back(ValueOrThrow(std::move(run)));
  return runs;
}

std::string CaseName(const ::testing::TestParamInfo<EngineCase>& test) { return test.param.name; }

class AnySplitTest : public ::testing::TestWithParam<EngineCase> {};
INSTANTIATE_TEST_SUITE_P(All, AnySplitTest,
                         ::testing::ValuesIn(WithMicroStatistics(AnySplitCases())), CaseName);

class AnySplitSumsTest : public ::testing::TestWithParam<EngineCase> {};
INSTANTIATE_TEST_SUITE_P(All, AnySplitSumsTest, ::testing::ValuesIn(AnySplitCases()), CaseName);

TEST_P(AnySplitTest, HasSameBitsOnAnyRanks) {
  const EngineRun alone = RunOn(GetParam(), 1).front();
  const auto worlds = kSanitized ? std::vector{3} : std::vector{2, 3, 5, 7, 9};
  for (const int ranks : worlds) {
    SCOPED_TRACE(ranks);
    for (const EngineRun& run : RunOn(GetParam(), ranks)) {
      EXPECT_EQ(run.digest, alone.digest);
      EXPECT_EQ(run.parameters, alone.parameters);
      EXPECT_EQ(run.state, alone.state);
      for (std::size_t u = 0; u < alone.results.size(); ++u) {
        EXPECT_EQ(run.results[u].samples, alone.results[u].samples);
        EXPECT_EQ(run.results[u].divisor, alone.results[u].divisor);
        EXPECT_EQ(run.results[u].loss, alone.results[u].loss);
        EXPECT_EQ(run.results[u].grad_norm, alone.results[u].grad_norm);
      }
    }
  }
}

// Only rounding differs from the other sums, whose bits depend on the ranks.
TEST_P(AnySplitSumsTest, EqualOtherSumsUpToRounding) {
  EngineCase other = GetParam();
  other.bits = Bits::kThisSplit;
  const EngineRun alone = RunOn(other, 1).front();
  const bool bf16 = other.numerics.precision == Precision::kBF16;
  EXPECT_LT(Distance(RunOn(GetParam(), 3).front().parameters, alone.parameters),
            bf16 ? 1e-2 : 1e-5);
  if (bf16) return;
  EXPECT_NE(RunOn(other, 3).front().digest, alone.digest) << "this test would detect nothing";
}

TEST(AnySplit, DivergesOnAllRanksIfOneSampleIsNotFinite) {
  EngineCase test = AnySplit("poisoned");
  test.poisoned = 40;
  test.tolerate_nonfinite = true;
  const EngineRun alone = RunOn(test, 1).front();
  int skipped = 0;
  for (const UpdateResult& result : alone.results) skipped += result.finite ? 0 : 1;
  EXPECT_GT(skipped, 0);
  EXPECT_LT(skipped, std::ssize(alone.results));
  for (const EngineRun& run : RunOn(test, 4)) EXPECT_EQ(run.digest, alone.digest);
}

// Blocks are recomputed then; smaller micro-batches would change the bits.
TEST(AnySplit, LackOfMemoryKeepsBits) {
  const EngineCase test = AnySplit("memory");
  const EngineRun plain = RunOn(test, 1).front();
  int left = 1;
  const auto refuses = [&](std::int64_t n) { return n == 7 && left-- > 0; };
  const auto once = RunCpuRanks(test, {.choice = {.refuses_memory = refuses}});
  ASSERT_OK(once.front());
  EXPECT_EQ(once.front()->digest, plain.digest);
  left = 2;
  const auto twice = RunCpuRanks(test, {.choice = {.refuses_memory = refuses}});
  EXPECT_THAT(twice.front(), IsError(ErrorKind::kConfig, "--bits=any-split", "recomputed already"));
}

}  // namespace
}  // namespace gaccd::tests
