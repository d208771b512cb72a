// Files of a run as they should be, and as crashes, clocks and disks leave them.
#include "daemon/inspect/watch/event_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/telemetry/event_text.h"
#include "daemon/telemetry/update_events.h"
#include "tests/support/run_files.h"
#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

// "000-812 step@7": attempt, event and second.
std::vector<std::string> Rest(EventStream& stream) {
  std::vector<std::string> reported;
  Event event;
  while (stream.Next(&event)) {
    const std::string second(event.Text("ts").substr(17, 2));
    reported.push_back(StrCat(event.attempt, " ", event.name, "@", second));
  }
  return reported;
}

EventStream OpenStream(const RunFiles& run, std::string_view only = "",
                       EventStream::RankEvents rank_events = EventStream::RankEvents::kSkip) {
  return ValueOrThrow(EventStream::Open(run.path(), only, rank_events));
}

TEST(ParseEvent, ReadsReporterOutput) {
  const RunIdentity who{.run = "a\"b\n", .job = "812", .attempt = 1, .rank = 3, .host = "n1"};
  StepRecord step{.step = 12, .loss = std::nan(""), .grad_norm = 0.5, .skipped = true};
  Event event;
  ASSERT_TRUE(ParseEvent(EventJson(who, {At(5), 7, "info"}, step), &event));
  EXPECT_EQ(event.name, "step");
  EXPECT_EQ(event.at, *ParseTimestamp(At(5)));
  EXPECT_EQ(event.Text("run"), "a\"b\n");
  EXPECT_EQ(event.Whole("step"), 12);
  EXPECT_EQ(event.Number("step"), 12.0);
  EXPECT_EQ(event.Number("grad_norm"), 0.5);
  EXPECT_EQ(event.Number("loss"), std::nullopt);
  EXPECT_TRUE(event.Is("skipped"));
  EXPECT_FALSE(event.Is("loss_finite"));
  EXPECT_EQ(event.Find("no_such_key"), std::nullopt);
}

// Events of a run that an older version began.
TEST(ParseEvent, ReadsRenamedKeysOfOlderVersions) {
  Event plan;
  ASSERT_TRUE(ParseEvent(StrCat(R"({"ts":")", At(1), R"(","ev":"plan","eff_batch":3072})"), &plan));
  EXPECT_EQ(plan.Whole("effective_batch"), 3072);
  EXPECT_EQ(plan.Fields().back().first, "effective_batch");
  Event resume;
  ASSERT_TRUE(
      ParseEvent(StrCat(R"({"ts":")", At(1), R"(","ev":"resume","passed_over":2})"), &resume));
  EXPECT_EQ(resume.Whole("skipped_checkpoints"), 2);
}

// A line as gaccd writes it has a parser of its own, which a blank turns away.
TEST(ParseEvent, BothParsersAgree) {
  const std::string head = StrCat(R"("ts":")", At(1), R"(","ev":"x",)");
  for (const std::string_view value : {"0",
                                       "-0",
                                       "1",
                                       "-17",
                                       "01",
                                       "1.",
                                       ".5",
                                       "1.5e-07",
                                       "1E+9",
                                       "1e5",
                                       "3e",
                                       "--1",
                                       "1e99",
                                       "1e999",
                                       "-1e-400",
                                       "9223372036854775807",
                                       "9223372036854775808",
                                       "18446744073709551616",
                                       "-9223372036854775809",
                                       "0.1000000000000000055511151231257827",
                                       "true",
                                       "truefalse",
                                       "nul",
                                       "null",
                                       "\"\"",
                                       "\"a b\"",
                                       "\"a\\n\\u00e9\"",
                                       "\"\xc3\xa9\"",
                                       "\"\xff\"",
                                       "\"\t\"",
                                       "{}",
                                       "[]",
                                       "1,",
                                       "\"x",
                                       "1}",
                                       ""}) {
    Event plain;
    Event other;
    const bool is_event = ParseEvent(StrCat("{", head, "\"value\":", value, "}"), &plain);
    ASSERT_EQ(is_event, ParseEvent(StrCat("{ ", head, "\"value\":", value, "}"), &other)) << value;
    if (!is_event) continue;
    EXPECT_EQ(plain.Fields(), other.Fields()) << value;
    EXPECT_EQ(plain.Find("value"), other.Find("value")) << value;
    const Event copy = plain;
    plain = Event();
    EXPECT_EQ(copy.Fields(), other.Fields()) << value;
  }
}

TEST(ParseEvent, RefusesOtherThanFlatObjectWithTimeAndName) {
  Event event;
  const std::string ts = StrCat(R"("ts":")", At(1), "\"");
  for (const std::string& wrong :
       {std::string(), std::string("3"), std::string("{"), std::string("[1]"),
        std::string(R"({"ev":"step"})"), StrCat("{", ts, "}"), StrCat(R"({"ev":3,)", ts, "}"),
        StrCat(R"({"ev":"step","x":[1],)", ts, "}"), StrCat(R"({"ev":"step","x":{},)", ts, "}"),
        StrCat(R"({"ev":"step",)", ts, "} x")}) {
    EXPECT_FALSE(ParseEvent(wrong, &event)) << wrong;
  }
}

TEST(EventStream, OrdersAttemptsAndRecordsByTime) {
  RunFiles run;
  run.Event("001-812", 20, "run_start");
  run.Event("000-812", 1, "run_start");
  run.Event("000-812", 5, "step");
  run.Event("000-812", 9, "verdict");
  run.Crash("000-812", 7, 3, R"(,"exit":65)");
  run.Crash("000-812", 6, 1, R"(,"exit":69)");
  run.Event("001-812", 25, "step");
  run.Append("attempts/001-812/verdict.json", RunFiles::Line(30, "verdict", 1));
  EventStream stream = OpenStream(run);
  EXPECT_THAT(Rest(stream),
              ElementsAre("000-812 run_start@01", "000-812 step@05", "000-812 failure@06",
                          "000-812 failure@07", "000-812 verdict@09", "001-812 run_start@20",
                          "001-812 step@25", "001-812 verdict@30"));
  EXPECT_THAT(stream.notes(), IsEmpty());
}

// Job 100 is requeued and continues after job 200. A clock may be set back inside a job.
TEST(EventStream, OrdersAttemptsOfAlternatingJobs) {
  RunFiles run;
  run.Event("000-100", 10, "run_start");
  run.Event("000-200", 20, "run_start");
  run.Event("001-100", 30, "run_start");
  run.Event("002-100", 25, "run_start");
  EventStream stream = OpenStream(run);
  EXPECT_THAT(Rest(stream), ElementsAre("000-100 run_start@10", "000-200 run_start@20",
                                        "001-100 run_start@30", "002-100 run_start@25"));
}

// Each process is a job of its own there; their numbers tell the order.
TEST(EventStream, OrdersLocalAttemptsByNumber) {
  RunFiles run;
  run.Event("000-local-71", 10, "run_start");
  run.Event("001-local-52", 30, "run_start");
  run.Event("002-local-63", 25, "run_start");
  EventStream stream = OpenStream(run);
  EXPECT_THAT(Rest(stream), ElementsAre("000-local-71 run_start@10", "001-local-52 run_start@30",
                                        "002-local-63 run_start@25"));
}

TEST(EventStream, MergesLinesOfRanksByTimeOnRequest) {
  RunFiles run;
  const auto of_rank = [&](const char* attempt, int rank, int second) {
    run.Append(StrCat("attempts/", attempt, "/ev/r0000", rank, ".jsonl"),
               RunFiles::Line(second, "rank_step", 1, StrCat(R"(,"of":)", rank)));
  };
  run.Event("000-812", 1, "run_start");
  of_rank("000-812", 1, 2);
  of_rank("000-812", 0, 3);
  run.Event("000-812", 4, "step");
  of_rank("000-812", 1, 5);
  run.Append("attempts/000-812/ev/r00001.jsonl", "{\"v\":1,\"ts\n");
  run.Crash("000-812", 6, 1, R"(,"exit":69)");
  run.Event("001-812", 7, "run_start");
  EventStream without = OpenStream(run);
  EXPECT_EQ(Rest(without).size(), 4u);
  EventStream stream = OpenStream(run, "", EventStream::RankEvents::kRead);
  EXPECT_THAT(Rest(stream),
              ElementsAre("000-812 run_start@01", "000-812 rank_step@02", "000-812 rank_step@03",
                          "000-812 step@04", "000-812 rank_step@05", "000-812 failure@06",
                          "001-812 run_start@07"));
  EXPECT_THAT(stream.notes(), ElementsAre("attempt 000-812: 1 lines are damaged"));
  of_rank("001-812", 2, 8);
  ASSERT_TRUE(stream.Refresh().ok());
  EXPECT_THAT(Rest(stream), ElementsAre("001-812 rank_step@08"));
}

TEST(NewestRankLines, AreLastCompleteLinesOfLongFiles) {
  RunFiles run;
  for (int rank = 0; rank < 2; ++rank) {
    for (int second = 0; second < 300; ++second) {
      run.Append(StrCat("attempts/000-812/ev/r0000", rank, ".jsonl"),
                 RunFiles::Line(second, "rank_step", second + 1, StrCat(R"(,"of":)", rank)));
    }
  }
  run.Append("attempts/000-812/ev/r00000.jsonl",
             RunFiles::Line(301, "allocation_retry", 301, R"(,"of":0)"));
  run.Append("attempts/000-812/ev/r00001.jsonl", "{\"v\":1,\"ts");
  const std::vector<Event> newest = NewestRankLines(run.Path("attempts/000-812"));
  ASSERT_EQ(newest.size(), 2u);
  for (std::size_t rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(newest[rank].Whole("seq"), 300);
    EXPECT_EQ(newest[rank].Whole("of"), static_cast<std::int64_t>(rank));
  }
  EXPECT_TRUE(NewestRankLines(run.Path("attempts/none")).empty());
}

TEST(EventStream, ReportsVerdictOfRankZeroOnce) {
  RunFiles run;
  run.Event("000-812", 9, "verdict");
  run.Append("attempts/000-812/verdict.json", RunFiles::Line(9, "verdict", 1));
  EventStream stream = OpenStream(run);
  EXPECT_THAT(Rest(stream), ElementsAre("000-812 verdict@09"));
}

TEST(EventStream, CountsDamagedLinesAndReadsOthers) {
  RunFiles run;
  run.Event("000-812", 1, "run_start");
  run.Append("attempts/000-812/events.jsonl", "{\"v\":1,\"ts\n");
  run.Append("attempts/000-812/events.jsonl", std::string(100'000, 'x') + "\n");
  run.Append("attempts/000-812/events.jsonl", std::string("\0\0\n", 3));
  run.Event("000-812", 2, "step");
  run.Append("attempts/000-812/events.jsonl", R"({"v":1,"ts":"2026)");
  EventStream stream = OpenStream(run);
  EXPECT_THAT(Rest(stream), ElementsAre("000-812 run_start@01", "000-812 step@02"));
  EXPECT_THAT(stream.notes(), ElementsAre("attempt 000-812: its last line is cut off",
                                          "attempt 000-812: 3 lines are damaged"));
}

TEST(EventStream, ReportsMissingAndLostLines) {
  RunFiles run;
  run.Event("000-812", 1, "run_start");
  run.SkipSeq("000-812", 3);
  run.Event("000-812", 2, "dropped", R"(,"lines":4)");
  run.Event("000-812", 3, "step");
  constexpr const char* kLost =
      "attempt 000-812: 4 lines were lost when the disk was full or silent: sums over updates and "
      "samples lack them";
  EventStream said = OpenStream(run);
  EXPECT_EQ(Rest(said).size(), 3);
  EXPECT_THAT(said.notes(), ElementsAre(kLost)) << "they are not missing as well";
  run.SkipSeq("000-812", 2);
  run.Event("000-812", 4, "step");
  EventStream stream = OpenStream(run);
  (void)Rest(stream);
  EXPECT_THAT(stream.notes(), ElementsAre("attempt 000-812: 2 lines are missing", kLost));
}

TEST(EventStream, ReportsClockJumpsAndTwoWriters) {
  RunFiles run;
  run.Event("000-812", 10, "run_start");
  run.Event("000-812", 40, "step");
  run.Event("000-812", 12, "step");
  run.Append("attempts/000-812/events.jsonl", RunFiles::Line(13, "plan", 2));
  run.Event("001-812", 5, "run_start");  // of a node whose clock is behind
  EventStream stream = OpenStream(run);
  EXPECT_THAT(Rest(stream),
              ElementsAre("000-812 run_start@10", "000-812 step@40", "000-812 step@12",
                          "000-812 plan@13", "001-812 run_start@05"));
  EXPECT_THAT(stream.notes(),
              ElementsAre("attempt 000-812: its lines have two writers, or are duplicated",
                          "attempt 000-812: its clock was set back",
                          "attempt 001-812 begins 8 s before attempt 000-812 ends: both ran at "
                          "once, or a clock jumped"));
}

TEST(EventStream, ReportsMissingOrEmptyAttempts) {
  RunFiles run;
  run.Event("002-812", 50, "run_start");
  run.Append("attempts/001-812/events.jsonl", "");
  run.Event("000-900", 60, "run_start");
  run.Append("attempts/not-an-attempt", "");
  run.Append("attempts/20261130-copy/events.jsonl", "");  // not after 20 million others
  run.Append("ledger.jsonl", "{\"attempt\":\"003-812\",\"exit\":75}\n");
  EventStream stream = OpenStream(run);
  EXPECT_THAT(Rest(stream), ElementsAre("002-812 run_start@50", "000-900 run_start@00"));
  EXPECT_THAT(stream.notes(),
              ::testing::UnorderedElementsAre(
                  "attempt 001-812 has no events", "attempt 000-812 has no folder",
                  "attempt 003-812 has no folder", "attempt 20261130-copy has no events"));
}

TEST(EventStream, NamesOfMissingAttemptsAreBounded) {
  RunFiles run;
  for (int job = 1; job <= 30; ++job) {
    run.Append(StrCat("attempts/9999-", job, "/events.jsonl"), "");
  }
  EXPECT_LE(OpenStream(run).notes().size(), 100'100U);
}

TEST(EventStream, RefusesEventsOfNewerVersion) {
  RunFiles run;
  run.Event("000-812", 1, "run_start");
  run.Append("attempts/001-812/events.jsonl",
             StrCat(R"({"v":2,"ts":")", At(9), R"(","ev":"run_start","seq":1})", "\n"));
  EXPECT_THAT(EventStream::Open(run.path()),
              IsError(ErrorKind::kConfig, "events.jsonl' was written by a newer gaccd",
                      "expected version <= 1, found 2"));
}

TEST(EventStream, SelectsAttemptByNumberNameOrNewest) {
  RunFiles run;
  run.Event("000-812", 1, "run_start");
  run.Event("001-812", 9, "run_start");
  for (const char* only : {"1", "001-812", "latest"}) {
    EventStream stream = OpenStream(run, only);
    EXPECT_THAT(Rest(stream), ElementsAre("001-812 run_start@09")) << only;
  }
  EXPECT_THAT(EventStream::Open(run.path(), "7"), IsError(ErrorKind::kUsage, "000-812, 001-812"));
  EXPECT_THAT(EventStream::Open(run.path() + "/attempts"), HasKind(ErrorKind::kUsage));
}

// A second job in the folder of a live run was refused, and left a folder without events.
TEST(EventStream, LatestIsTheAttemptOfTheState) {
  RunFiles run;
  run.Event("000-812", 1, "run_start");
  run.Append("attempts/000-813/srun.err", "in use");
  run.Append("ledger.jsonl", R"({"attempt":"000-813","exit":78,"verdict":"stop"})"
                             "\n");
  run.Append("STATUS.json",
             StrCat(R"({"ts":")", At(2), R"(","job":"812","attempt_dir":"attempts/000-812",)",
                    R"("state":"running","world":1,"step":1,"steps_total":9})"));
  EventStream stream = OpenStream(run, "latest");
  EXPECT_THAT(Rest(stream), ElementsAre("000-812 run_start@01"));
}

TEST(EventStream, ReadsLinesWrittenLater) {
  RunFiles run;
  run.Event("000-812", 1, "run_start");
  EventStream stream = OpenStream(run);
  EXPECT_EQ(Rest(stream).size(), 1);
  EXPECT_THAT(Rest(stream), IsEmpty());
  run.Event("000-812", 2, "step");
  run.Crash("000-812", 3, 1, "");
  run.Event("001-812", 9, "run_start");
  ASSERT_TRUE(stream.Refresh().ok());
  EXPECT_THAT(Rest(stream),
              ElementsAre("000-812 step@02", "000-812 failure@03", "001-812 run_start@09"));
}

TEST(EventStream, LatestContinuesWithLaterAttempts) {
  RunFiles run;
  run.Event("000-812", 1, "run_start");
  run.Event("001-812", 3, "run_start");
  EventStream stream = OpenStream(run, "latest");
  EXPECT_THAT(Rest(stream), ElementsAre("001-812 run_start@03"));
  run.Event("001-812", 4, "step");
  run.Event("002-812", 9, "run_start");
  for (int again = 0; again < 2; ++again) ASSERT_OK(stream.Refresh());
  EXPECT_THAT(Rest(stream), ElementsAre("001-812 step@04", "002-812 run_start@09"));
  run.Event("002-812", 10, "step");
  ASSERT_OK(stream.Refresh());
  EXPECT_THAT(Rest(stream), ElementsAre("002-812 step@10"));
}

TEST(EventStream, SkipsTooLongLineForAnyChunkSize) {
  for (const std::size_t piece : {std::size_t{1'000}, 3 * LineReader::kMaxBytes}) {
    const TempFolder folder;
    const std::string most(LineReader::kMaxBytes, 'x');
    LineReader lines(
        folder.Write("a", "one\n" + most + "x\n" + most + most + "y\n" + most + "\ntwo\n"), piece);
    EXPECT_EQ(lines.Next(), "one");
    EXPECT_EQ(lines.Next(), most);
    EXPECT_EQ(lines.Next(), "two");
    EXPECT_EQ(lines.too_long(), 2);
  }
}

TEST(EventStream, LineMayEndAtAnyByteOfAChunk) {
  for (std::size_t piece = 1; piece < 40; ++piece) {
    const TempFolder folder;
    LineReader lines(folder.Write("a", "one\n\ntwo three\nfour"), piece);
    EXPECT_EQ(lines.Next(), "one");
    EXPECT_EQ(lines.Next(), "");
    EXPECT_EQ(lines.Next(), "two three");
    EXPECT_EQ(lines.Next(), std::nullopt);
    EXPECT_EQ(lines.torn_bytes(), 4);
    std::ofstream(folder.Path("a"), std::ios::app) << "ty\n";
    EXPECT_EQ(lines.Next(), "fourty");
  }
}

}  // namespace
}  // namespace gaccd
