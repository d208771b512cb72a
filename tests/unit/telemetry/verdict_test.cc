#include "daemon/rundir/verdict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "daemon/telemetry/event_text.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"
#include "tests/unit/telemetry/json.h"

namespace gaccd {
namespace {

using namespace testing_json;  // NOLINT
namespace fs = std::filesystem;

const RunIdentity kThree{"run", "77", 0, 3, "n1"};
const std::vector<std::string> kHosts{"n0", "n0", "n1", "n1", "n1", "n1", "n2", "n2"};
const Status kLost{ErrorKind::kUnavailable, "rank 3 on n1 has ended"};

class VerdictTest : public testing::Test {
 protected:
  VerdictTest() { fs::create_directories(Attempt() + "/crash"); }
  [[nodiscard]] std::string Run() const { return dir_.path() + "/run"; }
  [[nodiscard]] std::string Attempt() const { return Run() + "/attempts/000-77"; }
  void Leave(const Failure& failure, int rank = 3) const {
    std::ofstream(CrashPath(Attempt(), rank)) << EventJson(kThree, {"ts", 1, "error"}, failure);
  }

  TempFolder dir_;
  const FailureFacts facts_{
      .rank = 0, .suspects = {{3, "n1"}, {2, "n1"}, {7, "n2"}}, .hosts = kHosts};
};

TEST_F(VerdictTest, NamesByKind) {
  const auto name = [](ErrorKind kind) { return MakeVerdict({kind, "x"}, {}, "").verdict; };
  EXPECT_EQ(MakeVerdict(Status::Ok(), {}, "").verdict, "done");
  EXPECT_EQ(name(ErrorKind::kTempFail), "requeue");
  EXPECT_EQ(name(ErrorKind::kNoRequeue), "norequeue");
  EXPECT_EQ(name(ErrorKind::kUnavailable), "requeue");
  EXPECT_EQ(name(ErrorKind::kInterrupted), "norequeue");
  EXPECT_EQ(name(ErrorKind::kData), "fail");
  EXPECT_EQ(GetLevel(MakeVerdict(Status::Ok(), {}, "")), "info");
  EXPECT_EQ(GetLevel(MakeVerdict({ErrorKind::kTempFail, "x"}, {}, "")), "error");
}

TEST_F(VerdictTest, SuspectsWithoutRecord) {
  const Verdict verdict = MakeVerdict(kLost, facts_, Attempt());
  EXPECT_EQ(verdict.suspect_hosts, "n1,n2");
  EXPECT_EQ(verdict.first->rank, 3);
  EXPECT_FALSE(verdict.first_failure);
  const Object line = Parse(EventJson(kThree, {"ts", 1, "error"}, verdict));
  EXPECT_EQ(Text(line, "suspect_hosts"), "n1,n2");
  EXPECT_EQ(Text(line, "first_host"), "n1");
  EXPECT_EQ(line.count("first_msg"), 0u);
}

TEST_F(VerdictTest, RecordOfLostRankIsCause) {
  Leave({.exit = 0, .signal = SIGBUS, .message = "SIGBUS: memory"});
  const Verdict verdict = MakeVerdict(kLost, facts_, Attempt());
  EXPECT_THAT(verdict.reason,
              StartsWith("rank 3 on n1 has ended; rank 3 itself (signal 7): SIGBUS: memory"));
  EXPECT_EQ(verdict.exit, 69);
  EXPECT_EQ(verdict.suspect_hosts, "n1,n2");
  const Object line = Parse(EventJson(kThree, {"ts", 1, "error"}, verdict));
  EXPECT_EQ(Number(line, "first_rank"), 3);
  EXPECT_EQ(Number(line, "first_signal"), SIGBUS);
}

TEST_F(VerdictTest, ProgramFaultBlamesNoHost) {
  Leave({.exit = 65, .signal = 0, .message = "record 7 is damaged"});
  FailureFacts facts = facts_;
  facts.suspects = {{3, "n1"}};
  const Verdict verdict = MakeVerdict(kLost, facts, Attempt());
  EXPECT_EQ(verdict.suspect_hosts, "");
  EXPECT_THAT(verdict.reason, EndsWith("rank 3 itself (exit 65): record 7 is damaged"));
  EXPECT_EQ(verdict.exit, 65) << "the code of the rank that failed first";
  EXPECT_EQ(verdict.verdict, "fail");
}

TEST_F(VerdictTest, NamesAllRanksThatEndedTogether) {
  const FailureFacts facts{
      .rank = 0, .suspects = {{3, "n1", true}, {7, "n2", true}}, .hosts = kHosts};
  const Verdict verdict = MakeVerdict(kLost, facts, Attempt());
  EXPECT_EQ(verdict.suspect_hosts, "n1,n2");
  EXPECT_THAT(verdict.reason, StartsWith("rank 3 on n1 has ended; "));
  EXPECT_THAT(verdict.reason, HasSubstr("; rank 7 on n2 was lost, too"));
  EXPECT_EQ(Text(Parse(EventJson(kThree, {"ts", 1, "error"}, verdict)), "lost_ranks"), "3,7");
}

TEST_F(VerdictTest, ReportsMemoryOfKilledRank) {
  FailureFacts facts{.suspects = {{3, "n1", true, 412'300'000}}, .hosts = kHosts};
  facts.memory_planned_bytes = 401'000'000;
  Verdict verdict = MakeVerdict(kLost, facts, Attempt());
  EXPECT_THAT(verdict.reason, HasSubstr("was killed from outside (SIGKILL"));
  EXPECT_THAT(verdict.reason, HasSubstr("its memory was 412.3 MB, planned 401.0 MB"));
  const Object line = Parse(EventJson(kThree, {"ts", 1, "error"}, verdict));
  EXPECT_TRUE(Bool(line, "first_killed"));
  EXPECT_EQ(Number(line, "first_memory_bytes"), 412'300'000);
  EXPECT_EQ(Number(line, "memory_planned_bytes"), 401'000'000);
  facts.suspects[0].ended = false;  // silent, so nobody knows
  verdict = MakeVerdict(kLost, facts, Attempt());
  EXPECT_EQ(verdict.reason, "rank 3 on n1 has ended");
}

TEST_F(VerdictTest, NamesNodeWithoutRemainingRanks) {
  FailureFacts facts{.suspects = {{3, "n1", true, 412'300'000}, {2, "n1", true}, {7, "n2", true}},
                     .hosts = kHosts};
  facts.suspects.insert(facts.suspects.end(), {{5, "n1", true}, {4, "n1", true}});
  const Verdict verdict = MakeVerdict(kLost, facts, Attempt());
  EXPECT_THAT(verdict.reason, HasSubstr("all 4 ranks on n1 were lost"));
  EXPECT_THAT(verdict.reason, HasSubstr("its memory was 412.3 MB"));
  EXPECT_THAT(verdict.reason, Not(HasSubstr("the kernel")));
  EXPECT_THAT(verdict.reason, Not(HasSubstr("rank 4"))) << "its node says it";
  EXPECT_THAT(verdict.reason, HasSubstr("rank 7 on n2 was lost, too")) << "one of two";
  EXPECT_EQ(verdict.suspect_hosts, "n1,n2");
  Leave({.exit = 65, .message = "record 7 is damaged"}, 4);  // so the node lives
  EXPECT_THAT(MakeVerdict(kLost, facts, Attempt()).reason, HasSubstr("the kernel"));
}

TEST_F(VerdictTest, NodeWithOneRankIsNotLost) {
  const FailureFacts facts{.suspects = {{1, "n1", true}}, .hosts = {"n0", "n1", "n2"}};
  const std::string reason =
      MakeVerdict({ErrorKind::kUnavailable, "rank 1 on n1 has ended"}, facts, Attempt()).reason;
  EXPECT_THAT(reason, HasSubstr("was killed from outside (SIGKILL"));
  EXPECT_THAT(reason, Not(HasSubstr("the node or its network")));
}

const Status kGaveUp{ErrorKind::kUnavailable, "all-reduce #17: rank 2 on n1 gave up"};

TEST_F(VerdictTest, RanksThatGaveUpNameCause) {
  const FailureFacts facts{.rank = 0, .gave_up = {2, 4}, .hosts = kHosts};
  Leave({.exit = 69, .message = "rank 4 on n1 gave up", .lost_ranks = {4}}, 2);
  Leave({.exit = 69, .message = "rank 7 on n2 did not enter", .lost_ranks = {7}}, 4);
  Verdict verdict = MakeVerdict(kGaveUp, facts, Attempt());
  EXPECT_EQ(verdict.first->rank, 7);
  EXPECT_EQ(verdict.suspect_hosts, "n2");
  EXPECT_THAT(verdict.reason, StartsWith("rank 7 on n2 was lost first: all-reduce #17"));
  // One that failed by itself.
  Leave({.exit = 74, .message = "cannot read x"}, 4);
  verdict = MakeVerdict(kGaveUp, facts, Attempt());
  EXPECT_THAT(verdict.reason, StartsWith("rank 4 on n1 failed first: "));
  EXPECT_THAT(verdict.reason, EndsWith("rank 4 itself (exit 74): cannot read x"));
  EXPECT_EQ(verdict.exit, 74);
}

TEST_F(VerdictTest, RanksThatGaveUpForEachOtherAreNotBlamed) {
  Leave({.exit = 69, .message = "rank 4 on n1 gave up", .lost_ranks = {4}}, 2);
  Leave({.exit = 69, .message = "rank 2 on n1 gave up", .lost_ranks = {2}}, 4);
  const Verdict verdict =
      MakeVerdict(kGaveUp, {.rank = 0, .gave_up = {2, 4}, .hosts = kHosts}, Attempt());
  EXPECT_EQ(verdict.suspect_hosts, "");
  EXPECT_EQ(verdict.reason, kGaveUp.message());
}

TEST_F(VerdictTest, RankThatGaveUpForAnotherIsNoSuspect) {
  Leave({.exit = 69, .message = "rank 7 on n2 has ended", .lost_ranks = {7}});
  FailureFacts facts{.rank = 0, .suspects = {{3, "n1", true}}, .hosts = kHosts};
  EXPECT_EQ(MakeVerdict(kLost, facts, Attempt()).first->rank, 7);
  facts.rank = 7;  // word against word
  EXPECT_EQ(MakeVerdict(kLost, facts, Attempt()).first->rank, 3);
}

TEST_F(VerdictTest, ReportsOwnFailureFirst) {
  const Verdict verdict = MakeVerdict({ErrorKind::kIo, "cannot write y"},
                                      {.suspects = {{3, "n1"}}, .hosts = kHosts}, Attempt());
  EXPECT_EQ(verdict.reason, "cannot write y; rank 3 on n1 was lost, too");
  EXPECT_EQ(verdict.exit, 74);
}

TEST_F(VerdictTest, ReplacementOfRankZeroReadsAllRecords) {
  Leave({.exit = 69, .message = "x", .lost_ranks = {0, 5}}, 6);
  Leave({.exit = 69, .message = "x", .lost_ranks = {6}}, 2);  // which has left for others itself
  FailureFacts facts{.rank = 1, .suspects = {{0, "n0", true}}, .hosts = kHosts};
  AddRanksLostByPeers(Attempt(), &facts);
  ASSERT_EQ(facts.suspects.size(), 2U);
  EXPECT_EQ(facts.suspects[1].rank, 5);
  EXPECT_EQ(facts.suspects[1].host, "n1");
}

TEST_F(VerdictTest, ReplacementOfRankZeroReadsManyRecords) {
  for (int rank = 1; rank < 300; ++rank) {
    Leave({.exit = 69, .message = "x", .lost_ranks = {0, 5}}, rank == 5 ? 300 : rank);
  }
  FailureFacts facts{.rank = 1, .suspects = {{0, "n0", true}}, .hosts = kHosts};
  AddRanksLostByPeers(Attempt(), &facts);
  ASSERT_EQ(facts.suspects.size(), 2U);
  EXPECT_EQ(facts.suspects[1].rank, 5);
}

TEST_F(VerdictTest, IgnoresDamagedRecord) {
  for (const char* text : {"", "{", "[]", "{\"exit\":\"x\"}", "\xff\x00"}) {
    std::ofstream(CrashPath(Attempt(), 3)) << text;
    EXPECT_EQ(MakeVerdict(kLost, facts_, Attempt()).suspect_hosts, "n1,n2") << text;
  }
  EXPECT_FALSE(ReadEvent<Failure>(std::string(4000, '[')).ok());
}

TEST_F(VerdictTest, RecordRoundTrips) {
  Failure failure{.exit = 74,
                  .signal = 0,
                  .step = 12,
                  .phase = "reduce",
                  .micro_step = 3,
                  .collective = "all_reduce_sum",
                  .sequence = 1'000'000'000'000,
                  .message = "a \"b\"\n\x1b",
                  .lost_ranks = {3, 239}};
  const auto back =
      ValueOrThrow(ReadEvent<Failure>(EventJson(kThree, {"ts", 1, "error"}, failure)));
  EXPECT_EQ(back.exit, 74);
  EXPECT_EQ(back.step, 12);
  EXPECT_EQ(back.phase, "reduce");
  EXPECT_EQ(back.micro_step, 3);
  EXPECT_EQ(back.collective, "all_reduce_sum");
  EXPECT_EQ(back.sequence, 1'000'000'000'000);
  EXPECT_EQ(back.message, failure.message);
  EXPECT_EQ(back.lost_ranks, failure.lost_ranks);
}

// Rank 0 has written more than another rank knows.
TEST_F(VerdictTest, KeepsStatusOfLostRankZero) {
  RunStatus status;
  status.identity = kThree;
  status.attempt_dir = "attempts/000-77";
  status.device = "cuda";
  status.loads = "4x12";
  status.save_step = 4;
  status.last = {.step = 5, .steps_total = 9, .loss = 0.5, .rates = {.samples_per_s = 7}};
  RunStatus last;
  last.identity = kThree;
  last.last = {.step = 6, .steps_total = 9, .loss = 0.25};
  const Verdict verdict = MakeVerdict({ErrorKind::kUnavailable, "rank 0 is lost"},
                                      {.suspects = {{0, "n0"}}}, Attempt());
  for (const bool same : {true, false}) {
    if (!same) status.attempt_dir = "attempts/000-76";
    fs::remove(Attempt() + "/verdict.json");
    ASSERT_OK(ReplaceFile(Run() + "/STATUS.json", StatusJson(status), false));
    ASSERT_OK(WriteVerdictForRankZero(Attempt(), kThree, last, verdict, 0600));
    const auto written = ReadStatus(Content(Run() + "/STATUS.json"));
    ASSERT_TRUE(written.has_value());
    EXPECT_EQ(written->state, "failed");
    EXPECT_EQ(written->attempt_dir, "attempts/000-77");
    EXPECT_EQ(written->last.step, 6);
    EXPECT_EQ(written->last.loss, 0.25);
    EXPECT_EQ(written->device, same ? "cuda" : "");
    EXPECT_EQ(written->loads, same ? "4x12" : "");
    EXPECT_EQ(written->save_step.value_or(0), same ? 4 : 0);
    if (same) {
      EXPECT_EQ(written->last.rates.samples_per_s, 7);
    } else {
      EXPECT_TRUE(std::isnan(written->last.rates.samples_per_s)) << "not known";
    }
  }
}

TEST_F(VerdictTest, OneRankReplacesRankZero) {
  RunStatus last;
  last.identity = kThree;
  last.identity.host = "n0";
  last.last.step = 5;
  last.world = 8;
  const Verdict verdict = MakeVerdict({ErrorKind::kUnavailable, "rank 0 is lost"},
                                      {.suspects = {{0, "n0"}}}, Attempt());
  RunIdentity writer = kThree;
  writer.rank = 1;
  ASSERT_TRUE(WriteVerdictForRankZero(Attempt(), writer, last, verdict, 0600).ok());
  writer.rank = 2;
  ASSERT_TRUE(WriteVerdictForRankZero(Attempt(), writer, last, verdict, 0600).ok());
  const auto there = WriteVerdictOnce(Attempt(), kThree, verdict, 0600);
  EXPECT_TRUE(there.ok() && *there);
  const Object line = Parse(Content(Attempt() + "/verdict.json"));
  EXPECT_EQ(Number(line, "rank"), 1);
  EXPECT_EQ(Text(line, "host"), "n1") << "of the rank that wrote it";
  EXPECT_EQ(Text(line, "suspect_hosts"), "n0");
  const Object status = Parse(Content(Run() + "/STATUS.json"));
  EXPECT_EQ(Text(status, "state"), "failed");
  EXPECT_EQ(Text(status, "host"), "n0") << "of rank 0";
  EXPECT_EQ(Text(status, "attempt_dir"), "attempts/000-77");
  EXPECT_EQ(Text(status, "suspect_hosts"), "n0");
  EXPECT_EQ(Number(status, "step"), 5);
  int files = 0;
  for ([[maybe_unused]] const auto& entry : fs::directory_iterator(Attempt())) ++files;
  EXPECT_EQ(files, 2) << "crash and verdict.json, nothing temporary";
}

}  // namespace
}  // namespace gaccd
