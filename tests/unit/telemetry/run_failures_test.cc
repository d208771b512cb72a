// A run that fails, crashes, loses rank 0, or is given hostile names.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/inotify.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>

#include "collectives/base/files.h"
#include "collectives/base/output.h"
#include "collectives/comm/threads.h"
#include "daemon/rundir/run_reporter.h"
#include "daemon/telemetry/log.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"
#include "tests/unit/telemetry/json.h"
#include "tests/unit/telemetry/run_child.h"

namespace gaccd {
namespace {

class RunFailuresTest : public RunReporterTest {};

using namespace testing_json;  // NOLINT
namespace fs = std::filesystem;

// Four ranks; rank 0 ends without a word when the others learn that it is lost.
TEST_F(RunFailuresTest, AnotherRankWritesVerdictWithoutRankZero) {
  const Child child = RunIntoFile(dir_.path() + "/out", [&] {
    return RunThreadRanks(4, TwoNodes(), [&](Communicator& comm) -> Status {
      auto reporter = RunReporter::Start(comm, Options(Run()));
      if (!reporter.ok()) return reporter.status();
      (*reporter)->Report(StepAt(3, 5));
      (*reporter)->Report(EvalRecord{.step = 3, .loss = 0.5, .best = BestValue{"loss", 0.25, 2}});
      (*reporter)->SetPhase("reduce", 1);
      if (comm.rank() == 0) {
        // Not destroyed: it has died. Its hook would be used after the test's end.
        SetLogHook({});
        [[maybe_unused]] auto* lost = reporter->release();
        return Status::Ok();
      }
      (*reporter)->Finish({ErrorKind::kUnavailable, "rank 0 on node0 has ended"},
                          {.suspects = {{0, "node0"}},
                           .hosts = {"node0", "node0", "node1", "node1"},
                           .collective = "all_reduce_sum",
                           .sequence = 12});
      return Status::Ok();
    });
  });
  EXPECT_EQ(child.exit, 0) << child.out;
  const Object verdict = Parse(Content(Latest() + "/verdict.json"));
  EXPECT_EQ(Text(verdict, "verdict"), "requeue");
  EXPECT_EQ(Number(verdict, "exit"), 69);
  EXPECT_GE(Number(verdict, "rank"), 1);
  EXPECT_EQ(Number(verdict, "last_step"), 3);
  EXPECT_EQ(Text(verdict, "suspect_hosts"), "node0");
  EXPECT_THAT(Text(verdict, "job"), testing::StartsWith("local-"));
  EXPECT_EQ(Number(verdict, "attempt"), 0);
  const Object status = Parse(Content(Run() + "/STATUS.json"));
  EXPECT_EQ(Text(status, "state"), "failed");
  EXPECT_EQ(Text(status, "host"), "node0") << "of rank 0, not of the rank that wrote it";
  EXPECT_EQ(Number(status, "best_value"), 0.25);
  for (const char* rank : {"r00001", "r00002", "r00003"}) {
    const Object record = Parse(Content(Latest() + "/crash/" + rank + ".json"));
    EXPECT_EQ(Number(record, "exit"), 69);
    EXPECT_EQ(Text(record, "phase"), "reduce");
    EXPECT_EQ(Text(record, "collective"), "all_reduce_sum");
    EXPECT_EQ(Number(record, "sequence"), 12);
  }
  EXPECT_FALSE(fs::exists(Latest() + "/crash/r00000.json"));
}

TEST_F(RunFailuresTest, StatusAfterResumeHasCheckpointStep) {
  const Child child = RunIntoFile(dir_.path() + "/out", [&] {
    return RunThreadRanks(2, TwoNodes(), [&](Communicator& comm) -> Status {
      GACCD_ASSIGN_OR_RETURN(auto reporter, RunReporter::Start(comm, Options(Run())));
      reporter->Report(
          ResumeRecord{.step = 7, .samples_total = 700, .best = BestValue{"mae", 0.125, 4}});
      if (comm.rank() == 0) {
        SetLogHook({});
        [[maybe_unused]] auto* lost = reporter.release();
        return Status::Ok();
      }
      reporter->Finish({ErrorKind::kUnavailable, "rank 0 on node0 has ended"},
                       {.suspects = {{0, "node0"}}, .hosts = {"node0", "node0"}});
      return Status::Ok();
    });
  });
  EXPECT_EQ(child.exit, 0) << child.out;
  const Object status = Parse(Content(Run() + "/STATUS.json"));
  EXPECT_EQ(Text(status, "state"), "failed");
  EXPECT_EQ(Number(status, "step"), 7);
  EXPECT_EQ(Number(status, "samples_total"), 700);
  EXPECT_EQ(Number(status, "best_value"), 0.125);
}

// On a disk that is full, the space that was kept is for the files of the end.
TEST_F(RunFailuresTest, FreesReservedSpaceBeforeFinalWrites) {
  const Child child = RunIntoFile(dir_.path() + "/out", [&]() -> Status {
    const auto comm = MakeSingle();
    GACCD_ASSIGN_OR_RETURN(const auto reporter, RunReporter::Start(*comm, Options(Run())));
    EXPECT_GT(fs::file_size(Latest() + "/.space"), 4096U);
    const FileDescriptor changes(::inotify_init1(IN_NONBLOCK));
    for (const std::string& folder : {Latest(), Latest() + "/crash"}) {
      EXPECT_GE(::inotify_add_watch(changes.get(), folder.c_str(), IN_CREATE | IN_DELETE), 0);
    }
    reporter->Finish({ErrorKind::kInternal, "the test"});
    alignas(inotify_event) char first[4096];
    EXPECT_GT(::read(changes.get(), first, sizeof first), 0);
    EXPECT_STREQ(reinterpret_cast<const inotify_event*>(first)->name, ".space");
    return Status::Ok();
  });
  EXPECT_EQ(child.exit, 0) << child.out;
}

// A rank that fails by itself says why before the others learn that it is gone.
TEST_F(RunFailuresTest, VerdictNamesCauseNotConsequence) {
  const Child child = RunIntoFile(dir_.path() + "/out", [&] {
    std::atomic<bool> left{false};
    return RunThreadRanks(2, TwoNodes(), [&](Communicator& comm) -> Status {
      auto reporter = RunReporter::Start(comm, Options(Run()));
      if (!reporter.ok()) return reporter.status();
      if (comm.rank() == 1) {
        (*reporter)->Finish({ErrorKind::kData, "record 7 is damaged"});
        left = true;
        return Status::Ok();
      }
      while (!left) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      (*reporter)->Finish({ErrorKind::kUnavailable, "rank 1 on node0 has ended"},
                          {.suspects = {{1, "node0"}}});
      return Status::Ok();
    });
  });
  EXPECT_EQ(child.exit, 0) << child.out;
  const Object verdict = Parse(Content(Latest() + "/verdict.json"));
  EXPECT_EQ(Text(verdict, "reason"),
            "rank 1 on node0 has ended; rank 1 itself (exit 65): record 7 is damaged");
  EXPECT_EQ(Number(verdict, "first_exit"), 65);
  EXPECT_EQ(verdict.count("suspect_hosts"), 0u) << "no fault of the host";
}

// A rank that has returned ends all others, also rank 0.
TEST_F(RunFailuresTest, OtherRanksWaitForVerdict) {
  const Child child = RunIntoFile(dir_.path() + "/out", [&] {
    return RunThreadRanks(2, TwoNodes(), [&](Communicator& comm) -> Status {
      GACCD_ASSIGN_OR_RETURN(const auto reporter, RunReporter::Start(comm, Options(Run())));
      const Status lost(ErrorKind::kUnavailable, "rank 2 on node1 has ended");
      const FailureFacts facts{
          .rank = comm.rank(), .suspects = {{2, "node1"}}, .hosts = {"node0", "node0", "node1"}};
      const std::string record = Latest() + "/crash/r00001.json";
      while (comm.rank() == 0 && !fs::exists(record)) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      if (comm.rank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(300));
      reporter->Finish(lost, facts);
      if (comm.rank() == 1 && !fs::exists(Latest() + "/verdict.json")) {
        return {ErrorKind::kInternal, "rank 1 has returned before there was a verdict"};
      }
      return Status::Ok();
    });
  });
  EXPECT_EQ(child.exit, 0) << child.out;
}

TEST_F(RunFailuresTest, CrashWritesRecord) {
  RunIntoFile(dir_.path() + "/out", [&] {
    const rlimit no_core{0, 0};
    ::setrlimit(RLIMIT_CORE, &no_core);
    const auto comm = MakeSingle();
    auto reporter = RunReporter::Start(*comm, Options(Run()));
    if (!reporter.ok()) return reporter.status();
    (*reporter)->Report(StepAt(2, 5));
    (*reporter)->SetPhase("compute", 4);
    std::abort();
  });
  const Object record = Parse(Content(Latest() + "/crash/r00000.json"));
  EXPECT_EQ(Number(record, "signal"), SIGABRT);
  EXPECT_EQ(Number(record, "step"), 2);
  EXPECT_EQ(Text(record, "phase"), "compute");
}

// A full FIFO that nobody reads in place of the event file: a folder that does not answer.
TEST_F(RunFailuresTest, HangingFolderDelaysNeitherStepsNorEnd) {
  const Child child = RunIntoFile(dir_.path() + "/out", [&]() -> Status {
    const auto comm = MakeSingle();
    ReporterOptions options = Options(Run());
    options.end_limit = std::chrono::milliseconds(100);
    auto reporter = RunReporter::Start(*comm, options);
    if (!reporter.ok()) return reporter.status();
    ReplaceOpenFile(Latest() + "/events.jsonl", HangingPipe());
    for (std::int64_t step = 1; step <= 5; ++step) (*reporter)->Report(StepAt(step, 5));
    (*reporter)->Finish({ErrorKind::kTempFail, "SIGTERM"});
    const Status& left = (*reporter)->close_status();
    if (left.ok()) return {ErrorKind::kInternal, "nothing was said"};
    return PrintOut(left.message() + "\n");
  });
  EXPECT_EQ(child.exit, 0) << child.out;
  EXPECT_THAT(child.out, HasSubstr("step: 5, loss is 0.4"));
  EXPECT_THAT(child.out, HasSubstr("the run folder '" + fs::canonical(Run()).string() +
                                   "' does not answer: verdict.json was not written within 100"));
  EXPECT_THAT(child.out, HasSubstr("stopped: 5 updates"));
}

// Two seconds later PeerWatch ends a rank that has lost another one.
TEST_F(RunFailuresTest, HangingFolderDelaysEndForThreeSecondsAfterALoss) {
  const Child child = RunIntoFile(dir_.path() + "/out", [&]() -> Status {
    const auto comm = MakeSingle();
    ReporterOptions options = Options(Run());
    options.end_limit = std::chrono::seconds(30);
    GACCD_ASSIGN_OR_RETURN(const auto reporter, RunReporter::Start(*comm, options));
    ReplaceOpenFile(Latest() + "/events.jsonl", HangingPipe());
    reporter->Finish({ErrorKind::kUnavailable, "rank 1 on node0 has ended"},
                     {.suspects = {{1, "node0"}}});
    return PrintOut(reporter->close_status().message() + "\n");
  });
  EXPECT_EQ(child.exit, 0) << child.out;
  EXPECT_THAT(child.out, HasSubstr("verdict.json was not written within 3000 ms"));
}

// Everything a run makes, whatever the umask is.
TEST_F(RunFailuresTest, FolderIsReadableByOwnerOnly) {
  for (const bool group : {false, true}) {
    const std::string run = dir_.path() + (group ? "/group" : "/own");
    RunIntoFile(dir_.path() + "/out", [&] {
      ::umask(0);
      const auto comm = MakeSingle();
      ReporterOptions options = Options(run);
      options.group_access = group;
      return FiveSteps(*comm, options);
    });
    int files = 0;
    for (const auto& entry : fs::recursive_directory_iterator(run)) {
      if (entry.is_symlink()) continue;
      const int mode = static_cast<int>(entry.status().permissions()) & 0777;
      const bool only_ours = entry.path().filename() == ".owner";
      const int wanted = only_ours              ? 0600
                         : entry.is_directory() ? (group ? 0750 : 0700)
                                                : (group ? 0640 : 0600);
      EXPECT_EQ(mode, wanted) << entry.path();
      ++files;
    }
    EXPECT_GE(files, 12);
  }
}

// The job's name comes from a file that anybody may have written.
TEST_F(RunFailuresTest, EscapesNames) {
  const std::string name = "x\"\n{\"ev\":\"step\"}\x1b[2J$(reboot);" + std::string(100'000, 'y');
  const Child child = RunIntoFile(dir_.path() + "/out", [&] {
    const auto comm = MakeSingle();
    ReporterOptions options = Options(Run());
    options.run_name = name;
    auto reporter = RunReporter::Start(*comm, options);
    if (!reporter.ok()) return reporter.status();
    (*reporter)->LogAndPrint("job " + name);
    LogWarning("job " + name);
    (*reporter)->Finish({ErrorKind::kData, "job " + name});
    return Status::Ok();
  });
  EXPECT_THAT(child.out, Not(HasSubstr("\x1b")));
  EXPECT_THAT(child.out, Not(HasSubstr("\n{\"ev\"")));
  for (const std::string& line : Lines(Latest() + "/events.jsonl")) {
    EXPECT_LT(line.size(), 4096u);
    EXPECT_NE(Text(Parse(line), "ev"), "step");
  }
  EXPECT_LT(Content(Run() + "/STATUS.json").size(), 4096u);
  Parse(Content(Run() + "/STATUS.json"));
  Parse(Content(Latest() + "/crash/r00000.json"));
}

}  // namespace
}  // namespace gaccd
