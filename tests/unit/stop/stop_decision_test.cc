// What the ranks tell each other, what follows from it, and how often they ask.
#include <gtest/gtest.h>

#include <vector>

#include "daemon/stop/stop_agreement.h"
#include "daemon/stop/stop_words.h"
#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

constexpr int kWorld = 4;

TEST(StopWords, EncodeAndDecodeKeepOtherWords) {
  StopWords words{.stop_now = 1,
                  .interrupted = 2,
                  .stop = 3,
                  .stop_file = 4,
                  .time_up = 5,
                  .save = 6,
                  .cannot_save = 7,
                  .cannot_save_after_update = 8,
                  .cannot_save_in_update = 8.5,
                  .pace_s = 9.5,
                  .signals = {10, 11, 12, 13, 14, 15}};
  std::vector<double> wire(kStopWordCount + 2, -1);
  Encode(words, wire);
  EXPECT_EQ(DecodeStopWords(wire), words);
  EXPECT_EQ(wire[kStopWordCount], -1);
  for (std::size_t i = 0; i < kStopWordCount; ++i) {
    for (std::size_t j = 0; j < i; ++j) EXPECT_NE(wire[i], wire[j]) << i << " " << j;
  }
}

TEST(StopWords, MergeKeepsRequestsAndNewestPace) {
  const StopWords older{.stop = 2, .cannot_save_after_update = 1, .pace_s = 3, .signals = {2}};
  const StopWords newer{.stop = 1, .save = 1, .pace_s = 2, .signals = {1, 1}};
  const StopWords both = Merge(older, newer);
  EXPECT_EQ(both.stop, 2);
  EXPECT_EQ(both.save, 1);
  EXPECT_EQ(both.cannot_save_after_update, 1);
  EXPECT_EQ(both.pace_s, 2);
  EXPECT_EQ(both.signals[0], 2);
  EXPECT_EQ(both.signals[1], 1);
  EXPECT_EQ(Merge(older, StopWords{}).pace_s, 3);
}

struct Case {
  const char* what;
  StopWords words;
  bool checkpoints;
  StopAction boundary;
  StopAction inside;
  ErrorKind kind = ErrorKind::kTempFail;
};

// The table of the decision.
TEST(Decide, EveryCase) {
  using enum StopAction;
  const Case cases[] = {
      {"nothing", {}, true, kContinue, kContinue},
      {"no time, but nobody asks",
       {.cannot_save = 1, .cannot_save_after_update = 1},
       true,
       kContinue,
       kContinue},
      {"save", {.save = 1}, true, kSave, kContinue},
      {"save without checkpoints", {.save = 1}, false, kContinue, kContinue},
      {"stop, time for all", {.stop = 1}, true, kSaveStop, kContinue},
      {"stop beats save", {.stop = 1, .save = 4}, true, kSaveStop, kContinue},
      {"stop, the rest does not fit",
       {.stop = 4, .cannot_save_after_update = 1},
       true,
       kSaveStop,
       kSaveStop},
      {"stop, neither the rest nor what was accumulated fits",
       {.stop = 4, .cannot_save_after_update = 1, .cannot_save_in_update = 1},
       true,
       kSaveStop,
       kSaveBeforeStop},
      {"stop, the rest fits, what was accumulated does not",
       {.stop = 4, .cannot_save_in_update = 1},
       true,
       kSaveStop,
       kContinue},
      {"stop, no time for a save",
       {.stop = 4, .cannot_save = 1, .cannot_save_after_update = 1},
       true,
       kExit,
       kExit},
      {"stop without checkpoints", {.stop = 4}, false, kExit, kExit},
      {"time is up", {.time_up = 4}, true, kSaveStop, kContinue},
      {"STOP", {.stop_file = 1}, true, kSaveStop, kContinue, ErrorKind::kNoRequeue},
      {"STOP and a signal",
       {.stop = 1, .stop_file = 1},
       true,
       kSaveStop,
       kContinue,
       ErrorKind::kNoRequeue},
      {"asked twice", {.stop_now = 1, .stop = 1}, true, kExit, kExit},
      {"Ctrl-C twice",
       {.stop_now = 1, .interrupted = 1, .stop = 1},
       true,
       kExit,
       kExit,
       ErrorKind::kInterrupted},
  };
  for (const Case& test : cases) {
    const StopDecision boundary = DecideAtBoundary(test.words, test.checkpoints, kWorld);
    EXPECT_EQ(boundary.action, test.boundary) << test.what;
    EXPECT_EQ(boundary.kind, test.kind) << test.what;
    EXPECT_EQ(DecideInside(test.words, test.checkpoints, kWorld).action, test.inside) << test.what;
  }
}

TEST(Decide, ReasonNamesRequest) {
  const StopDecision decision =
      DecideAtBoundary({.stop = 3, .signals = {3, 0, 0, 1}}, true, kWorld);
  EXPECT_EQ(decision.reason, "SIGTERM (3 of 4 ranks), SIGUSR2 (1 of 4 ranks)");
  EXPECT_THAT(
      decision.ToStatus("after update 7", true),
      IsError(ErrorKind::kTempFail,
              "stopped by SIGTERM (3 of 4 ranks), SIGUSR2 (1 of 4 ranks) after update 7, saved"));
}

TEST(Decide, ReportsWhyNothingIsSaved) {
  const auto message = [](const StopDecision& decision) {
    return decision.ToStatus("after update 7", false).message();
  };
  const StopWords late{.stop = 1, .cannot_save = 1, .cannot_save_after_update = 1, .signals = {1}};
  const StopWords stop{.stop = 1, .signals = {1}};
  for (const auto decide : {DecideAtBoundary, DecideInside}) {
    EXPECT_EQ(message(decide(late, true, kWorld)),
              "stopped by SIGTERM (1 of 4 ranks) after update 7, not saved: there was no time");
    EXPECT_EQ(message(decide(stop, false, kWorld)),
              "stopped by SIGTERM (1 of 4 ranks) after update 7, not saved: checkpoints are off "
              "(--save-every-seconds)");
  }
  const StopWords twice{.stop_now = 1, .stop = 1, .signals = {1}};
  EXPECT_EQ(message(DecideAtBoundary(twice, true, kWorld)),
            "stopped by SIGTERM (1 of 4 ranks), a second request after update 7, not saved");
}

TEST(ExchangeClock, DoublesUntilPaceIsKnownThenKeepsInterval) {
  ExchangeClock clock(0.5);
  std::vector<int> asked;
  for (int step = 1; step <= 16; ++step) {
    if (!clock.Due()) continue;
    asked.push_back(step);
    clock.Exchanged(0);
  }
  EXPECT_EQ(asked, (std::vector<int>{1, 2, 4, 8, 16}));
  clock.Exchanged(0.2);
  EXPECT_FALSE(clock.Due());
  EXPECT_FALSE(clock.Due());
  EXPECT_TRUE(clock.Due()) << "0.6 s";
  clock.Exchanged(2);
  EXPECT_TRUE(clock.Due()) << "slow steps: after each";
  for (int update = 0; update < 1000; ++update) {  // short updates: the boundary is always sooner
    clock.Exchanged(0.1);
    for (int step = 0; step < 4; ++step) EXPECT_FALSE(clock.Due());
  }
}

}  // namespace
}  // namespace gaccd
