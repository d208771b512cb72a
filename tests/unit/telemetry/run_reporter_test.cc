#include "daemon/rundir/run_reporter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <limits>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <vector>

#include "collectives/base/strings.h"
#include "collectives/comm/threads.h"
#include "daemon/inspect/watch/event_stream.h"
#include "daemon/telemetry/log.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"
#include "tests/unit/telemetry/json.h"
#include "tests/unit/telemetry/pty.h"
#include "tests/unit/telemetry/run_child.h"

namespace gaccd {
namespace {

using namespace testing_json;  // NOLINT
namespace fs = std::filesystem;

TEST_F(RunReporterTest, FileHasLinesWithoutBar) {
  const Child child = RunIntoFile(dir_.path() + "/out", [&] {
    const auto comm = MakeSingle();
    return FiveSteps(*comm, Options(Run()));
  });
  EXPECT_EQ(child.exit, 0) << child.out;
  EXPECT_THAT(child.out, Not(HasSubstr("\x1b")));
  EXPECT_THAT(child.out, Not(HasSubstr("\r")));
  const std::vector<std::string> lines = Lines(dir_.path() + "/out");
  const auto step = [](int number, const char* loss) {
    return AllOf(StartsWith(StrCat("epoch: 1 step: ", number, ", loss is ", loss, ", lr 0.01, ")),
                 HasSubstr(" samples/s, 0:0"));
  };
  EXPECT_THAT(
      lines,
      ElementsAre("THE PLAN", step(2, "1.000000"), step(4, "0.500000"), step(5, "0.400000"),
                  "epoch: 1 eval: accuracy is 0.8841, loss is 0.450000 "
                  "(mean of 10000 samples)",
                  "gaccd: warning: look here", StartsWith("done: 5 updates, 5000 samples in 0:"),
                  StartsWith("logs: " + fs::canonical(Run()).string())));
}

TEST_F(RunReporterTest, QuietRunWritesStatus) {
  const auto events = [&] { return Lines(Latest() + "/events.jsonl"); };
  const Child child = RunIntoFile(dir_.path() + "/out", [&]() -> Status {
    const auto comm = MakeSingle();
    ReporterOptions options = Options(Run());
    options.status_period = std::chrono::milliseconds(5);
    options.max_quiet = std::chrono::milliseconds(50);
    GACCD_ASSIGN_OR_RETURN(const auto reporter, RunReporter::Start(*comm, options));
    reporter->Report(StageRecord{"data"});
    const std::string owner = Run() + "/.owner";
    const auto old = fs::file_time_type::clock::now() - std::chrono::hours(1);
    fs::last_write_time(owner, old);
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (events().size() < 2 || fs::last_write_time(owner) == old) {
      if (std::chrono::steady_clock::now() > limit) {
        return {ErrorKind::kInternal, "expected a heartbeat and a fresh owner, found none in 20 s"};
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    std::_Exit(0);
  });
  EXPECT_EQ(child.exit, 0) << child.out;
  EXPECT_EQ(Text(Parse(events()[0]), "ev"), "starting");
  const Object heartbeat = Parse(events()[1]);
  EXPECT_EQ(Text(heartbeat, "ev"), "heartbeat");
  EXPECT_EQ(Text(heartbeat, "phase"), "data");
  EXPECT_GE(Number(heartbeat, "quiet_s"), 0.05);
}

TEST_F(RunReporterTest, FolderRecordsWholeRun) {
  ASSERT_EQ(RunIntoFile(dir_.path() + "/out",
                        [&] {
                          const auto comm = MakeSingle();
                          return FiveSteps(*comm, Options(Run()));
                        })
                .exit,
            0);
  std::vector<std::string> kinds;
  std::vector<Object> events;
  for (const std::string& line : Lines(Latest() + "/events.jsonl")) {
    events.push_back(Parse(line));
    kinds.push_back(Text(events.back(), "ev"));
    EXPECT_EQ(Number(events.back(), "seq"), static_cast<double>(events.size()));
    EXPECT_EQ(Text(events.back(), "run"), "fashion");
    EXPECT_LT(line.size(), 4096u);
  }
  EXPECT_THAT(kinds, ElementsAre("run_start", "plan", "step", "step", "step", "step", "step",
                                 "eval", "eval", "log", "verdict"));
  for (std::size_t i = 2; i < 7; ++i) {
    EXPECT_EQ(Number(events[i], "step"), static_cast<double>(i - 1));
    EXPECT_EQ(Number(events[i], "samples"), 1000);
    EXPECT_EQ(Number(events[i], "target"), 1000);
    EXPECT_EQ(Number(events[i], "samples_per_s"), 4000);
    EXPECT_EQ(Number(events[i], "mfu_ratio"), 0.2) << "4000 x 50e6 of 1e12, a rank";
    EXPECT_EQ(Number(events[i], "eta_s"), 0.25 * static_cast<double>(6 - i));
  }
  EXPECT_EQ(Text(events.back(), "verdict"), "done");
  EXPECT_EQ(Number(events.back(), "last_step"), 5);
  const Object verdict = Parse(Content(Latest() + "/verdict.json"));
  EXPECT_EQ(Number(verdict, "exit"), 0);
  const Object status = Parse(Content(Run() + "/STATUS.json"));
  EXPECT_EQ(Text(status, "state"), "done");
  EXPECT_EQ(Number(status, "step"), 5);
  EXPECT_EQ(Number(status, "write_errors"), 0);
  EXPECT_EQ(Number(status, "eval_accuracy"), 0.8841);
  EXPECT_GT(Number(status, "wall_samples_per_s"), 0);
  EXPECT_EQ(Text(status, "device"), "cpu");
  EXPECT_EQ(Text(status, "loads"), "4x250");
  EXPECT_EQ(Content(Run() + "/.owner"), "");
  EXPECT_EQ(Lines(Latest() + "/ranks.tsv").size(), 2u);
  Parse(Content(Latest() + "/env.json"));
  // The first update has a line of its own, the others share one at the end.
  const std::vector<std::string> own = Lines(Latest() + "/ev/r00000.jsonl");
  ASSERT_EQ(own.size(), 2u);
  EXPECT_EQ(Text(Parse(own[1]), "ev"), "rank_step");
  EXPECT_EQ(Number(Parse(own[0]), "updates"), 1);
  EXPECT_EQ(Number(Parse(own[1]), "updates"), 4);
  EXPECT_EQ(Number(Parse(own[1]), "dur_s"), 0.25);
  const std::string log = Content(Latest() + "/log/gaccd.INFO");
  EXPECT_THAT(log, HasSubstr("r0 s4 run_reporter.cc"));
  EXPECT_THAT(log, HasSubstr("] epoch: 1 step: 4, loss is 0.500000, lr 0.01, "));
  EXPECT_THAT(log, HasSubstr("] look here"));
}

// All that a new event takes: its record, here with a line for people and what it changes in
// STATUS.json, and its report.
struct FanRecord {
  static constexpr const char* kEvent = "fan";

  std::string name;
  std::int64_t turns_per_s = 0;
  std::optional<double> load_ratio;
  bool stopped = false;

  [[nodiscard]] std::string_view level() const { return stopped ? "warning" : "info"; }
  static void VisitFields(auto& fields, auto& fan) {
    fields.Text("name", fan.name, kMaxName);
    fields("turns_per_s", fan.turns_per_s);
    fields("load_ratio", fan.load_ratio);
    fields("stopped", fan.stopped);
  }
};
std::string EventLine(const FanRecord& fan) {
  return StrCat("fan ", fan.name, " turns ", fan.turns_per_s, " times a second");
}
void Apply(const FanRecord& fan, RunStatus& status) { status.gpu = StrCat("behind ", fan.name); }

TEST_F(RunReporterTest, NewEventIsRecordedAndReported) {
  const Child child = RunIntoFile(dir_.path() + "/out", [&] {
    const auto comm = MakeSingle();
    const auto reporter = RunReporter::Start(*comm, Options(Run()));
    if (!reporter.ok()) return reporter.status();
    (*reporter)->Report(FanRecord{.name = "front", .turns_per_s = 50, .load_ratio = 0.25});
    (*reporter)->Report(FanRecord{.name = "rear", .stopped = true});
    (*reporter)->Finish(Status::Ok());
    return (*reporter)->close_status();
  });
  EXPECT_EQ(child.exit, 0) << child.out;
  EXPECT_THAT(child.out, HasSubstr("fan front turns 50 times a second\n"));
  EXPECT_EQ(ReadStatus(Content(Run() + "/STATUS.json"))->gpu, "behind rear");
  auto stream = ValueOrThrow(EventStream::Open(Run()));
  Event event;
  ASSERT_TRUE(stream.Next(&event));
  EXPECT_EQ(event.name, "fan");
  EXPECT_THAT(event.line, HasSubstr(R"(,"name":"front","turns_per_s":50,"load_ratio":0.25,)"
                                    R"("stopped":false})"));
  const auto front = ValueOrThrow(ReadEvent<FanRecord>(event.line));
  EXPECT_EQ(front.name, "front");
  EXPECT_EQ(front.turns_per_s, 50);
  EXPECT_EQ(front.load_ratio, 0.25);
  EXPECT_THAT(ReadEvent<MemoryRecord>(event.line), HasKind(ErrorKind::kData)) << "another event";
  ASSERT_TRUE(stream.Next(&event));
  EXPECT_EQ(event.Text("lvl"), "warning");
  const auto rear = ValueOrThrow(ReadEvent<FanRecord>(event.line));
  EXPECT_TRUE(rear.stopped);
  EXPECT_EQ(rear.load_ratio, std::nullopt);
}

// Stopped before its first update: it has what the attempt before had done.
TEST_F(RunReporterTest, ResumeAndSaveAreEvents) {
  const Child child = RunIntoFile(dir_.path() + "/out", [&] {
    const auto comm = MakeSingle();
    auto reporter = RunReporter::Start(*comm, Options(Run()));
    if (!reporter.ok()) return reporter.status();
    (*reporter)->Report(ResumeRecord{.generation = "step-000000000020-e000001",
                                     .step = 20,
                                     .micro_step = 3,
                                     .samples_total = 20'000,
                                     .best = BestValue{"mae", 0.125, 16}});
    (*reporter)->Report(SaveRecord{.generation = "step-000000000020-e000002", .step = 20});
    (*reporter)->Report(SaveRecord{.step = 21, .reason = "no space left", .failed_in_row = 1});
    (*reporter)->Finish({ErrorKind::kTempFail, "SIGTERM"});
    return (*reporter)->close_status();
  });
  EXPECT_EQ(child.exit, 0) << child.out;
  EXPECT_THAT(
      child.out,
      HasSubstr("resumed after update 20 and 3 micro-steps of the next one, from checkpoint "
                "step-000000000020-e000001\n"));
  EXPECT_THAT(child.out,
              HasSubstr("stopped: 20 updates, 20000 samples; this attempt: 0 updates in 0:0"));
  std::vector<std::string> kinds;
  for (const std::string& line : Lines(Latest() + "/events.jsonl")) {
    kinds.push_back(Text(Parse(line), "ev") + " " + Text(Parse(line), "lvl"));
  }
  EXPECT_THAT(kinds, ElementsAre("resume info", "save info", "save warning", "verdict error"));
  const Object verdict = Parse(Content(Latest() + "/verdict.json"));
  EXPECT_EQ(Text(verdict, "lvl"), "error");
  EXPECT_EQ(Number(verdict, "last_step"), 20);
  EXPECT_EQ(Number(verdict, "samples_total"), 20'000);
  const Object status = Parse(Content(Run() + "/STATUS.json"));
  EXPECT_EQ(Number(status, "save_step"), 20) << "of the one that was committed";
  EXPECT_TRUE(ParseTimestamp(Text(status, "save_ts")).has_value());
  EXPECT_EQ(Number(status, "failed_saves"), 1);
  EXPECT_EQ(Number(status, "step"), 20);
  EXPECT_EQ(Number(status, "best_value"), 0.125) << "of the attempt before";
  EXPECT_EQ(status.count("loss"), 0u);
}

TEST_F(RunReporterTest, TerminalHasBarAndKeepsOtherLines) {
  ::setenv("LC_ALL", "C.UTF-8", 1);
  const Pty pty(100);
  const int exit = RunChild(pty.slave(), [&] {
    const auto comm = MakeSingle();
    return FiveSteps(*comm, Options(Run()));
  });
  const std::string seen = pty.Read();
  EXPECT_EQ(exit, 0) << seen;
  EXPECT_THAT(seen, testing::StartsWith("THE PLAN\r\n\repoch 1  ━━━"));
  EXPECT_THAT(seen, HasSubstr("100%  5/5  loss 0.4  lr 0.01  4000 samples/s  0:00 left\x1b[K"));
  EXPECT_THAT(seen, HasSubstr("\r\x1b[Kepoch: 1 eval: accuracy is 0.8841"));
  EXPECT_THAT(seen, HasSubstr("\r\x1b[Kgaccd: warning: look here\r\n"));
  EXPECT_THAT(seen, Not(HasSubstr("step: 2,"))) << "the bar says it";
  EXPECT_THAT(seen, HasSubstr("\r\x1b[Kdone: 5 updates, 5000 samples"));
}

TEST_F(RunReporterTest, PrintsNothingIfQuietWithoutFolder) {
  const Child child = RunIntoFile(dir_.path() + "/out", [&] {
    ReporterOptions options = Options("");
    options.quiet = true;
    const auto comm = MakeSingle();
    auto reporter = RunReporter::Start(*comm, options);
    if (!reporter.ok()) return reporter.status();
    (*reporter)->Report(StepAt(1, 1));
    (*reporter)->Finish(Status::Ok());
    return (*reporter)->close_status();
  });
  EXPECT_EQ(child.exit, 0);
  EXPECT_EQ(child.out, "");
}

TEST_F(RunReporterTest, FailedRunReportsReason) {
  const Child child = RunIntoFile(dir_.path() + "/out", [&] {
    const auto comm = MakeSingle();
    auto reporter = RunReporter::Start(*comm, Options(Run()));
    if (!reporter.ok()) return reporter.status();
    StepRecord step = StepAt(1, 5);
    step.loss = std::numeric_limits<double>::quiet_NaN();
    step.divisor = 10;
    step.skipped = true;
    (*reporter)->Report(step);
    (*reporter)->Finish({ErrorKind::kNoRequeue, "training diverged"});
    return Status::Ok();
  });
  EXPECT_EQ(child.exit, 0);
  EXPECT_THAT(child.out, HasSubstr("step: 1, loss is nan, update skipped: "));
  EXPECT_THAT(child.out, HasSubstr("stopped: 1 update,"));
  const Object verdict = Parse(Content(Latest() + "/verdict.json"));
  EXPECT_EQ(Text(verdict, "verdict"), "norequeue");
  EXPECT_EQ(Number(verdict, "exit"), 93);
  EXPECT_EQ(Text(verdict, "reason"), "training diverged");
  const Object status = Parse(Content(Run() + "/STATUS.json"));
  EXPECT_EQ(Text(status, "state"), "failed");
  EXPECT_TRUE(IsNull(status, "loss"));
}

TEST_F(RunReporterTest, DestructionWithoutFinishIsAFailure) {
  RunIntoFile(dir_.path() + "/out", [&] {
    const auto comm = MakeSingle();
    auto reporter = RunReporter::Start(*comm, Options(Run()));
    return reporter.ok() ? Status::Ok() : reporter.status();
  });
  EXPECT_EQ(Text(Parse(Content(Latest() + "/verdict.json")), "verdict"), "fail");
}

// The run folder disappears under a live run: training continues, the loss is reported once.
TEST_F(RunReporterTest, FullDiskDoesNotStopTraining) {
  const Child child = RunIntoFile(dir_.path() + "/out", [&] {
    const auto comm = MakeSingle();
    auto reporter = RunReporter::Start(*comm, Options(Run()));
    if (!reporter.ok()) return reporter.status();
    ReplaceOpenFile(Latest() + "/events.jsonl", ::open("/dev/full", O_WRONLY | O_CLOEXEC));
    for (std::int64_t step = 1; step <= 5; ++step) (*reporter)->Report(StepAt(step, 5));
    (*reporter)->Finish(Status::Ok());
    return (*reporter)->close_status();
  });
  EXPECT_EQ(child.exit, 0) << child.out;
  const std::string text = "events.jsonl': No space left on device; training continues";
  EXPECT_THAT(child.out, HasSubstr(text));
  EXPECT_EQ(child.out.find(text), child.out.rfind(text)) << "reported once";
  EXPECT_THAT(child.out, HasSubstr("step: 5, loss is 0.4"));
  const Object status = Parse(Content(Run() + "/STATUS.json"));
  EXPECT_EQ(Text(status, "state"), "done");
  EXPECT_GT(Number(status, "write_errors"), 4);
  EXPECT_EQ(Number(status, "dropped_lines"), 7) << "five updates, the warning, the verdict";
}

// A folder has the place of STATUS.json for a while.
TEST_F(RunReporterTest, WarnsIfStatusCannotBeWritten) {
  const std::string out = dir_.path() + "/out";
  const Child child = RunIntoFile(out, [&]() -> Status {
    const auto comm = MakeSingle();
    ReporterOptions options = Options(Run());
    options.status_period = std::chrono::milliseconds(5);
    GACCD_ASSIGN_OR_RETURN(const auto reporter, RunReporter::Start(*comm, options));
    const std::string path = Run() + "/STATUS.json";
    std::error_code error;  // it may be there again
    while (!fs::create_directory(path, error)) fs::remove(path, error);
    const auto warned = [&] {
      return Content(out).find("training continues") != std::string::npos;
    };
    for (int step = 1; step <= 4000 && !warned(); ++step) {
      reporter->Report(StepAt(step, 5000));
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    fs::remove(path);
    reporter->Finish(Status::Ok());
    return reporter->close_status();
  });
  EXPECT_EQ(child.exit, 0) << child.out;
  EXPECT_THAT(child.out, HasSubstr("STATUS.json': Is a directory; training continues"));
}

// The attempt's folder is there by then.
TEST_F(RunReporterTest, FailedStartLeavesVerdict) {
  fs::create_directories(Run() + "/STATUS.json/in-the-way");
  const auto comm = MakeSingle();
  const auto reporter = RunReporter::Start(*comm, Options(Run()));
  ASSERT_FALSE(reporter.ok());
  const Object verdict = Parse(Content(Latest() + "/verdict.json"));
  EXPECT_EQ(Text(verdict, "reason"), reporter.status().message());
  EXPECT_EQ(Number(verdict, "exit"), static_cast<int>(reporter.status().kind()));
  EXPECT_EQ(Number(verdict, "attempt"), 0);
  EXPECT_FALSE(fs::exists(Latest() + "/.space"));
}

TEST_F(RunReporterTest, AllRanksReturnSameFolder) {
  const Child child = RunIntoFile(dir_.path() + "/out", [&] {
    return RunThreadRanks(4, TwoNodes(), [&](Communicator& comm) -> Status {
      auto reporter = RunReporter::Start(comm, Options(Run()));
      if (!reporter.ok()) return reporter.status();
      RunStart start{.world = comm.size(), .flops_per_sample = 50e6, .peak_flops = 1e12};
      (*reporter)->Report(start);
      (*reporter)->Report(StepAt(1, 1));
      (*reporter)->Finish(Status::Ok());
      return Status::Ok();
    });
  });
  EXPECT_EQ(child.exit, 0) << child.out;
  const std::vector<std::string> ranks = Lines(Latest() + "/ranks.tsv");
  ASSERT_EQ(ranks.size(), 5u);
  EXPECT_EQ(ranks[0], "rank\thost\tnode\tlocal\tcpus\tpid");
  EXPECT_THAT(ranks[4], testing::StartsWith("3\tnode1\t1\t1\t"));
  for (const char rank : {'0', '1', '2', '3'}) {
    EXPECT_TRUE(PathExists(StrCat(Latest(), "/ev/r0000", rank, ".jsonl"))) << rank;
  }
  const std::vector<std::string> events = Lines(Latest() + "/events.jsonl");
  ASSERT_EQ(events.size(), 3u) << "only rank 0 writes";
  EXPECT_EQ(Number(Parse(events[1]), "mfu_ratio"), 0.05) << "4000 x 50e6 of 4 x 1e12";
}

TEST_F(RunReporterTest, AllRanksReturnSameError) {
  const Child child = RunIntoFile(dir_.path() + "/out", [&] {
    std::mutex mutex;
    std::vector<Status> seen;
    ExpectOk(RunThreadRanks(3, TwoNodes(), [&](Communicator& comm) {
      auto reporter = RunReporter::Start(comm, Options("/proc/no/run"));
      const std::lock_guard lock(mutex);
      seen.push_back(reporter.status());
      return Status::Ok();
    }));
    EXPECT_EQ(seen.size(), 3u);
    for (const Status& status : seen) {
      EXPECT_FALSE(status.ok());
      if (status.ok()) continue;
      EXPECT_THAT(status, IsError(ErrorKind::kIo, "/proc/no"));
    }
    return Status::Ok();
  });
  EXPECT_EQ(child.exit, 0) << child.out;
}

}  // namespace
}  // namespace gaccd
