#include "daemon/telemetry/verdict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/unit/telemetry/json.h"
#include "tests/unit/telemetry/temp_dir.h"

namespace gaccd {
namespace {

using namespace testing_json;  // NOLINT
using testing::EndsWith;
namespace fs = std::filesystem;

const RunIdentity kThree{"run", "77", 0, 3, "n1"};
const Status kLost{ErrorKind::kUnavailable, "rank 3 on n1 has ended"};

class VerdictTest : public testing::Test {
 protected:
  VerdictTest() { fs::create_directories(Attempt() + "/crash"); }
  [[nodiscard]] std::string Run() const { return dir_.path() + "/run"; }
  [[nodiscard]] std::string Attempt() const { return Run() + "/attempts/000-77"; }
  void Leave(const Failure& failure) const {
    std::ofstream(CrashPath(Attempt(), 3)) << FailureJson(kThree, {"ts", 1, "error"}, failure);
  }

  TempDir dir_;
  const FailureFacts facts_{
      .suspects = {{3, "n1"}, {2, "n1"}, {7, "n2"}}, .collective = {}, .sequence = {}};
};

TEST_F(VerdictTest, NamesByKind) {
  const auto name = [](ErrorKind kind) { return MakeVerdict({kind, "x"}, {}, "").verdict; };
  EXPECT_EQ(MakeVerdict(Status::Ok(), {}, "").verdict, "done");
  EXPECT_EQ(name(ErrorKind::kTempFail), "requeue");
  EXPECT_EQ(name(ErrorKind::kNoRequeue), "norequeue");
  EXPECT_EQ(name(ErrorKind::kUnavailable), "requeue");
  EXPECT_EQ(name(ErrorKind::kInterrupted), "norequeue");
  EXPECT_EQ(name(ErrorKind::kData), "fail");
}

TEST_F(VerdictTest, SuspectsOfARankThatLeftNothing) {
  const Verdict verdict = MakeVerdict(kLost, facts_, Attempt());
  EXPECT_EQ(verdict.suspect_hosts, "n1,n2");
  EXPECT_EQ(verdict.first->rank, 3);
  EXPECT_FALSE(verdict.first_failure);
  const Object line = Parse(VerdictJson(kThree, {"ts", 1, "error"}, verdict));
  EXPECT_EQ(Text(line, "suspect_hosts"), "n1,n2");
  EXPECT_EQ(Text(line, "first_host"), "n1");
  EXPECT_EQ(line.count("first_msg"), 0u);
}

TEST_F(VerdictTest, WhatTheLostRankSaidIsTheCause) {
  Leave({.exit = 0, .signal = SIGBUS, .message = "SIGBUS: memory"});
  const Verdict verdict = MakeVerdict(kLost, facts_, Attempt());
  EXPECT_EQ(verdict.reason, "rank 3 on n1 has ended; rank 3 itself (signal 7): SIGBUS: memory");
  EXPECT_EQ(verdict.suspect_hosts, "n1,n2");
  const Object line = Parse(VerdictJson(kThree, {"ts", 1, "error"}, verdict));
  EXPECT_EQ(Number(line, "first_rank"), 3);
  EXPECT_EQ(Number(line, "first_signal"), SIGBUS);
}

TEST_F(VerdictTest, AHostIsNotSuspectedOfAFaultOfTheProgram) {
  Leave({.exit = 65, .signal = 0, .message = "record 7 is damaged"});
  FailureFacts facts = facts_;
  facts.suspects = {{3, "n1"}};
  const Verdict verdict = MakeVerdict(kLost, facts, Attempt());
  EXPECT_EQ(verdict.suspect_hosts, "");
  EXPECT_THAT(verdict.reason, EndsWith("rank 3 itself (exit 65): record 7 is damaged"));
}

TEST_F(VerdictTest, ADamagedRecordIsNoRecord) {
  for (const char* text : {"", "{", "[]", "{\"exit\":\"x\"}", "\xff\x00"}) {
    std::ofstream(CrashPath(Attempt(), 3)) << text;
    EXPECT_EQ(MakeVerdict(kLost, facts_, Attempt()).suspect_hosts, "n1,n2") << text;
  }
  EXPECT_FALSE(ParseFailureJson(std::string(4000, '[')).ok());
}

TEST_F(VerdictTest, ARecordReadsBackAsItWas) {
  Failure failure{.exit = 74,
                  .signal = 0,
                  .step = 12,
                  .phase = "reduce",
                  .micro_step = 3,
                  .collective = "all_reduce_sum",
                  .sequence = 1'000'000'000'000,
                  .message = "a \"b\"\n\x1b"};
  const auto back = ParseFailureJson(FailureJson(kThree, {"ts", 1, "error"}, failure));
  ASSERT_TRUE(back.ok()) << back.status().message();
  EXPECT_EQ(back->exit, 74);
  EXPECT_EQ(back->step, 12);
  EXPECT_EQ(back->phase, "reduce");
  EXPECT_EQ(back->micro_step, 3);
  EXPECT_EQ(back->collective, "all_reduce_sum");
  EXPECT_EQ(back->sequence, 1'000'000'000'000);
  EXPECT_EQ(back->message, failure.message);
}

TEST_F(VerdictTest, OneOfManyRanksStandsInForRankZero) {
  RunStatus last;
  last.identity = kThree;
  last.last.step = 5;
  last.world = 8;
  const Verdict verdict =
      MakeVerdict({ErrorKind::kUnavailable, "rank 0 is lost"}, {{{0, "n0"}}, {}, {}}, Attempt());
  last.identity.rank = 1;
  ASSERT_TRUE(WriteVerdictForRankZero(Attempt(), last, verdict, 0600).ok());
  last.identity.rank = 2;
  ASSERT_TRUE(WriteVerdictForRankZero(Attempt(), last, verdict, 0600).ok());
  const auto there = WriteVerdictOnce(Attempt(), kThree, verdict, 0600);
  EXPECT_TRUE(there.ok() && *there);
  const Object line = Parse(Content(Attempt() + "/verdict.json"));
  EXPECT_EQ(Number(line, "rank"), 1);
  EXPECT_EQ(Text(line, "suspect_hosts"), "n0");
  const Object status = Parse(Content(Run() + "/STATUS.json"));
  EXPECT_EQ(Text(status, "state"), "failed");
  EXPECT_EQ(Text(status, "attempt_dir"), "attempts/000-77");
  EXPECT_EQ(Text(status, "suspect_hosts"), "n0");
  EXPECT_EQ(Number(status, "step"), 5);
  int files = 0;
  for ([[maybe_unused]] const auto& entry : fs::directory_iterator(Attempt())) ++files;
  EXPECT_EQ(files, 2) << "crash and verdict.json, nothing temporary";
}

}  // namespace
}  // namespace gaccd
