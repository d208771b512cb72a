#include "daemon/stop/stop_agreement.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <thread>

#include "collectives/comm/threads.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"
#include "tests/support/thread_clock.h"

namespace gaccd {
namespace {

using tests::ThreadClock;

constexpr int kRanks = 4;
constexpr auto kNoBurst = std::chrono::milliseconds(0);

// To this thread, which as the one of a rank has signals blocked; handled when it returns.
void RaiseHere(int signal) {
  sigset_t one;
  sigemptyset(&one);
  sigaddset(&one, signal);
  pthread_sigmask(SIG_UNBLOCK, &one, nullptr);
  raise(signal);
}

// One rank of a run whose updates are sums of words and nothing else. Only its micro-steps
// advance its clock.
struct Outcome {
  std::int64_t update = 0;
  std::int64_t micro_step = 0;  // 0: at the boundary
  StopDecision decision;
};

struct Scenario {
  StopOptions options;
  std::int64_t updates = 1000;
  std::int64_t micro_steps = 4;
  std::chrono::microseconds micro_step{200};
  double told_s = 0.0008;  // what an update is said to take
  double window_ratio = 1;
  int late = 0;                               // the words come so many updates late, as on a GPU
  std::chrono::nanoseconds signal_after{-1};  // of its clock; negative: no signal that counts
  std::function<void(int rank, std::int64_t update, std::int64_t micro_step)> event;
};

Outcome RunOneRank(Communicator& comm, const Scenario& run) {
  StopOptions options = run.options;
  options.now = ThreadClock::Now;
  if (run.signal_after.count() >= 0) ThreadClock::MeetSystemClock(run.signal_after);
  StopAgreement agreement(comm, options);
  std::vector<std::vector<double>> in_flight;
  for (std::int64_t update = 1; update <= run.updates; ++update) {
    std::vector<double> words(kStopWordCount + 1);
    agreement.ExpectSave(0, run.window_ratio);
    agreement.BeginUpdate();
    for (std::int64_t step = 1; step <= run.micro_steps; ++step) {
      ThreadClock::Advance(run.micro_step);
      if (run.event) run.event(comm.rank(), update, step);
      const auto here = agreement.BetweenMicroSteps(step, run.micro_steps);
      if (!here.ok()) return {-1, 0, {}};
      if (here->action != StopAction::kContinue) return {update, step, *here};
    }
    agreement.Pack(words, run.micro_steps, run.late);
    const MutableBuffer view = View(std::span<double>(words));
    if (!comm.AllReduceSum(view, view).ok()) return {-1, 0, {}};
    in_flight.push_back(words);
    if (static_cast<int>(in_flight.size()) <= run.late) continue;
    agreement.Unpack(in_flight.front(), run.told_s, run.micro_steps);
    in_flight.erase(in_flight.begin());
    const StopDecision decision = agreement.AtBoundary();
    if (decision.stops()) return {update, 0, decision};
    if (decision.action == StopAction::kSave) agreement.Saved();
  }
  return {run.updates + 1, 0, {}};
}

std::vector<Outcome> RunRanks(const std::function<Scenario(int rank)>& run_of) {
  std::vector<Outcome> outcomes(kRanks);
  ExpectOk(RunThreadRanks(kRanks, {}, [&](Communicator& comm) {
    outcomes[static_cast<std::size_t>(comm.rank())] = RunOneRank(comm, run_of(comm.rank()));
    return Status::Ok();
  }));
  return outcomes;
}

// All ranks stop in the same place for the same reason. Gives that of rank 0.
Outcome Same(const std::vector<Outcome>& outcomes) {
  for (const Outcome& one : outcomes) {
    EXPECT_EQ(one.update, outcomes[0].update);
    EXPECT_EQ(one.micro_step, outcomes[0].micro_step);
    EXPECT_EQ(one.decision.action, outcomes[0].decision.action);
    EXPECT_EQ(one.decision.kind, outcomes[0].decision.kind);
    EXPECT_EQ(one.decision.reason, outcomes[0].decision.reason);
  }
  return outcomes[0];
}

// Resumed after 900 of 1000 micro-steps of 2 ms: the 100 that are left are asked about every 20 ms.
TEST(StopAgreement, PaceExcludesPreviousAttempts) {
  const auto comm = MakeSingle();
  StopAgreement agreement(*comm, {.checkpoints = true,
                                  .exchange_every = std::chrono::duration<double>(0.02),
                                  .now = ThreadClock::Now});
  int asked = 0;
  agreement.SetPeriodicWork([&] {
    ++asked;
    return Status::Ok();
  });
  agreement.BeginUpdate(900);
  for (std::int64_t done = 901; done < 1000; ++done) {
    ThreadClock::Advance(std::chrono::milliseconds(2));
    ASSERT_TRUE(agreement.BetweenMicroSteps(done, 1000).ok());
  }
  EXPECT_EQ(asked, 10) << "after the first, and then after ten each";
  agreement.SetPeriodicWork([] { return Status(ErrorKind::kIo, "the third failed save"); });
  Status status;
  agreement.BeginUpdate();
  for (std::int64_t done = 1; done < 1000 && status.ok(); ++done) {
    ThreadClock::Advance(std::chrono::milliseconds(2));
    status = agreement.BetweenMicroSteps(done, 1000).status();
  }
  EXPECT_THAT(status, HasMessage("the third failed save"));
}

// Signals belong to the process: with ranks as threads only rank 2 looks at them.
TEST(StopAgreement, SignalOfOneRankStopsAllAtSameBoundary) {
  for (const int late : {0, 1}) {
    const std::int64_t last_step = Scenario().micro_steps;
    auto signals = ValueOrThrow(StopSignals::Install({SIGTERM}, kNoBurst));
    const Outcome outcome = Same(RunRanks([&](int rank) {
      Scenario run{.options = {.checkpoints = true}, .late = late};
      if (rank == 2) {
        run.options.signals = signals.get();
        run.event = [last_step](int, std::int64_t update, std::int64_t step) {
          if (update == 10 && step == last_step) RaiseHere(SIGTERM);
        };
      }
      return run;
    }));
    EXPECT_EQ(outcome.update, 10 + late) << "sent with the update in which it came";
    EXPECT_EQ(outcome.micro_step, 0) << "short updates are finished";
    EXPECT_EQ(outcome.decision.action, StopAction::kSaveStop);
    EXPECT_EQ(outcome.decision.reason, "SIGTERM (1 of 4 ranks)");
  }
}

// The ranks ask after every micro-step.
Scenario LongUpdates(double grace_s) {
  return {.options = {.term_budget = std::chrono::duration<double>(grace_s),
                      .checkpoints = true,
                      .exchange_every = std::chrono::duration<double>(1e-6),
                      .save_guess = std::chrono::duration<double>(1)},
          .updates = 6,
          .micro_step = std::chrono::milliseconds(1)};
}

TEST(StopAgreement, StopsInsideLongUpdateIfRestDoesNotFit) {
  struct {
    double grace_s;
    double window_ratio;
    std::int64_t update, micro_step;
    StopAction action;
  } const cases[] = {
      {1000, 1, 3, 0, StopAction::kSaveStop},          // ends the update it is in
      {62.5, 1, 3, 2, StopAction::kSaveStop},          // 1.5 x 1 s + 1 s and half of the rest
      {62.5, 100, 3, 2, StopAction::kSaveBeforeStop},  // with the accumulators it takes 100 s
      {0.5, 1, 3, 2, StopAction::kExit},               // not even a save fits, which needs 1 s
  };
  for (const auto& test : cases) {
    auto signals = ValueOrThrow(StopSignals::Install({SIGTERM}, kNoBurst));
    const Outcome outcome = Same(RunRanks([&](int rank) {
      Scenario run = LongUpdates(test.grace_s);
      run.window_ratio = test.window_ratio;
      // The rest of the update takes 60 s a step of rank 1, whose word alone must do.
      if (rank == 1) {
        run.micro_step = std::chrono::seconds(60);
        run.signal_after = 10 * run.micro_step;
        run.options.signals = signals.get();
        run.event = [](int, std::int64_t update, std::int64_t step) {
          if (update != 3 || step != 2) return;
          ThreadClock::MeetSystemClock({});  // the ranks met for as long as the machine took
          RaiseHere(SIGTERM);
        };
      }
      return run;
    }));
    EXPECT_EQ(outcome.update, test.update) << test.grace_s;
    EXPECT_EQ(outcome.micro_step, test.micro_step) << test.grace_s;
    EXPECT_EQ(outcome.decision.action, test.action) << test.grace_s;
  }
}

struct SlowUpdates {
  double budget_s = 8;
  double save_s = 1;
  std::int64_t steps = 8;
  std::function<double(std::int64_t update, std::int64_t step)> step_s;
  double tail_s = 1;  // of an update, after its last micro-step
  std::optional<double> job_s = {};
};

struct LeftAt {
  StopDecision decision;
  double left_s = 0;  // until SIGKILL or the end of the job
};

// One rank, by a clock that the test sets, which gets SIGTERM at `term_s`.
LeftAt StopAt(double term_s, const SlowUpdates& run) {
  auto signals = StopSignals::Install({SIGTERM}, kNoBurst);
  if (!signals.ok()) return {};
  const auto comm = MakeSingle();
  double now_s = 0;
  const auto base = std::chrono::steady_clock::now() -
                    std::chrono::duration_cast<std::chrono::nanoseconds>(
                        std::chrono::duration<double>(term_s));  // SIGTERM comes by the real clock
  const auto at = [&](double seconds) {
    return base + std::chrono::duration_cast<std::chrono::nanoseconds>(
                      std::chrono::duration<double>(seconds));
  };
  StopAgreement agreement(*comm,
                          {.signals = signals->get(),
                           .job_end = run.job_s ? std::optional(at(*run.job_s)) : std::nullopt,
                           .term_budget = std::chrono::duration<double>(run.budget_s),
                           .checkpoints = true,
                           .now = [&] { return at(now_s); }});
  const auto pass = [&](double seconds) {
    if (now_s < term_s && now_s + seconds >= term_s) RaiseHere(SIGTERM);
    now_s += seconds;
  };
  // The real clock has gone on since `base`, on a busy machine for longer.
  const auto left_s = [&] {
    if (run.job_s) return *run.job_s - now_s;
    const auto since_term = base - (*signals)->term_time().value_or(base);
    return run.budget_s - now_s - std::chrono::duration<double>(since_term).count();
  };
  for (std::int64_t update = 0; update < 100; ++update) {
    std::vector<double> words(kStopWordCount);
    agreement.ExpectSave(run.save_s, 1);
    agreement.BeginUpdate();
    const double began_s = now_s;
    for (std::int64_t step = 1; step <= run.steps; ++step) {
      pass(run.step_s(update, step));
      const auto here = agreement.BetweenMicroSteps(step, run.steps);
      if (!here.ok() || here->stops()) return {here.ok() ? *here : StopDecision{}, left_s()};
    }
    agreement.Pack(words, run.steps, 0);
    pass(run.tail_s);
    agreement.Unpack(words, now_s - began_s, run.steps);
    const StopDecision here = agreement.AtBoundary();
    if (here.stops()) return {here, left_s()};
  }
  return {};
}

// Updates of 7 to 11 s, --term-budget=8. Whenever SIGTERM comes, and however the pace changes
// within the update, there is time for a save.
TEST(StopAgreement, StopsInsideLongUpdateInTimeForSave) {
  const std::function<double(std::int64_t, std::int64_t)> paces[] = {
      [](auto, auto) { return 1.0; },
      [](std::int64_t update, auto) { return update % 2 == 0 ? 0.75 : 1.25; },
      [](auto, std::int64_t step) { return step <= 4 ? 0.8 : 1.2; },
      [](auto, std::int64_t step) { return step <= 7 ? 0.8 : 1.6; },
      [](auto, std::int64_t step) { return 0.7 + 0.1 * static_cast<double>(step); },
  };
  for (std::size_t pace = 0; pace < std::size(paces); ++pace) {
    for (const double save_s : {0.2, 1.0, 2.0}) {
      for (double term_s = 10; term_s < 30; term_s += 0.23) {
        const LeftAt found = StopAt(term_s, {.save_s = save_s, .step_s = paces[pace]});
        EXPECT_EQ(found.decision.action, StopAction::kSaveStop)
            << "pace " << pace << ", save " << save_s << ", SIGTERM at " << term_s;
        EXPECT_GE(found.left_s, NeededForSave(TimeLeft::Seconds(save_s)).count() - 0.1)
            << "pace " << pace << ", save " << save_s << ", SIGTERM at " << term_s;
      }
    }
  }
}

// An update, or what is left of it, need not end before the job: the time until then is used.
TEST(StopAgreement, StopsInsideLongUpdateShortlyBeforeJobEnd) {
  constexpr double kNever = 1e9;
  for (const double step_s : {0.01, 1.0, 20.0}) {
    const LeftAt found = StopAt(kNever, {.save_s = 2,
                                         .steps = 100'000,
                                         .step_s = [&](auto, auto) { return step_s; },
                                         .job_s = 700.0});
    EXPECT_EQ(found.decision.action, StopAction::kSaveStop) << step_s;
    EXPECT_EQ(found.decision.reason, "the job's time limit") << step_s;
    EXPECT_GE(found.left_s, NeededForSave(TimeLeft::Seconds(2)).count() + 5) << step_s;
    EXPECT_LE(found.left_s, 20 + 2.5 * step_s) << step_s;
  }
}

// The pace drops to a hundredth while the exchanges are far apart.
TEST(StopAgreement, ExchangesMoreOftenAfterRequest) {
  const SlowUpdates run{.budget_s = 12, .steps = 2000, .step_s = [](auto, std::int64_t step) {
                          return step < 600 ? 0.004 : 0.1;
                        }};
  const LeftAt found = StopAt(1.9, run);
  EXPECT_EQ(found.decision.action, StopAction::kSaveStop);
  EXPECT_GE(found.left_s, 2.4);
}

// On a GPU the next words were packed before the signal: they do not take it back.
TEST(StopAgreement, RequestBetweenMicroStepsStopsAtEndOfUpdate) {
  auto signals = ValueOrThrow(StopSignals::Install({SIGTERM}, kNoBurst));
  const Outcome outcome = Same(RunRanks([&](int rank) {
    Scenario run = LongUpdates(1000);
    run.late = 1;
    if (rank == 1) {
      run.options.signals = signals.get();
      run.event = [](int, std::int64_t update, std::int64_t step) {
        if (update == 3 && step == 2) RaiseHere(SIGTERM);
      };
    }
    return run;
  }));
  EXPECT_EQ(outcome.update, 3);
  EXPECT_EQ(outcome.micro_step, 0);
  EXPECT_EQ(outcome.decision.action, StopAction::kSaveStop);
}

TEST(StopAgreement, SecondSignalStopsAtOnce) {
  auto signals = ValueOrThrow(StopSignals::Install({SIGTERM}, kNoBurst));
  const Outcome outcome = Same(RunRanks([&](int rank) {
    Scenario run = LongUpdates(1000);
    if (rank == 3) {
      run.options.signals = signals.get();
      run.event = [](int, std::int64_t update, std::int64_t step) {
        if (update == 2 && (step == 1 || step == 3)) RaiseHere(SIGTERM);
      };
    }
    return run;
  }));
  EXPECT_EQ(outcome.update, 2);
  EXPECT_EQ(outcome.micro_step, 3);
  EXPECT_EQ(outcome.decision.action, StopAction::kExit);
  EXPECT_EQ(outcome.decision.kind, ErrorKind::kTempFail);
}

TEST(StopAgreement, RankZeroReadsFilesAndServesSaveOnce) {
  const std::string dir = testing::TempDir() + "/stop-" + std::to_string(getpid());
  std::filesystem::create_directory(dir);
  std::ofstream(dir + "/SAVE").close();
  const Outcome outcome = Same(RunRanks([&](int rank) {
    Scenario run{.options = {.run_dir = dir,
                             .checkpoints = true,
                             .poll_every = std::chrono::milliseconds(1)},
                 .updates = 100'000};
    if (rank == 0) {
      run.event = [&dir](int, std::int64_t, std::int64_t) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        // Only when SAVE was served is there a STOP.
        if (!std::filesystem::exists(dir + "/SAVE")) std::ofstream(dir + "/STOP").close();
      };
    }
    return run;
  }));
  EXPECT_EQ(outcome.decision.action, StopAction::kSaveStop);
  EXPECT_EQ(outcome.decision.kind, ErrorKind::kNoRequeue);
  EXPECT_EQ(outcome.decision.reason, "the file STOP");
  EXPECT_FALSE(std::filesystem::exists(dir + "/SAVE"));
  EXPECT_TRUE(std::filesystem::exists(dir + "/STOP"));
  std::filesystem::remove_all(dir);
}

// There is nothing to save, now or later: the file goes, and is mentioned once.
TEST(StopAgreement, SaveWithoutCheckpointsIsServedWithWarning) {
  const TempFolder folder;
  const std::string file = folder.Write("SAVE", "");
  const auto comm = MakeSingle();
  std::vector<std::string> warnings;
  StopAgreement agreement(*comm, {.run_dir = folder.path(),
                                  .warn = [&](const auto& text) { warnings.push_back(text); },
                                  .poll_every = std::chrono::milliseconds(1)});
  for (int update = 0; update < 6000 && std::filesystem::exists(file); ++update) {
    std::vector<double> words(kStopWordCount);
    agreement.Pack(words, 1, 0);
    agreement.Unpack(words, 0.1, 1);
    EXPECT_EQ(agreement.AtBoundary().action, StopAction::kContinue);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_FALSE(std::filesystem::exists(file));
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_THAT(warnings[0], HasSubstr("keeps no checkpoints"));
}

TEST(StopAgreement, StopsBeforeJobEndInTimeForSave) {
  const auto run_with = [&](std::int64_t left_s, bool checkpoints) {
    return Same(RunRanks([&](int rank) {
      Scenario run{.options = {.checkpoints = checkpoints}, .updates = 50};
      run.options.job_end =
          ThreadClock::Now() + std::chrono::seconds(left_s + (rank == 1 ? 0 : 1000));
      return run;
    }));
  };
  // A save is guessed to take 5 s: 1.5 x 5 + 1, and 5 s in reserve.
  EXPECT_EQ(run_with(100, true).update, 51);
  const Outcome near = run_with(12, true);
  EXPECT_EQ(near.update, 1);
  EXPECT_EQ(near.decision.action, StopAction::kSaveStop);
  EXPECT_EQ(near.decision.reason, "the job's time limit");
  EXPECT_EQ(run_with(12, false).update, 51) << "nothing to save: no reason to leave early";
  EXPECT_NE(run_with(5, true).decision.action, StopAction::kExit)
      << "what a save takes is only guessed: it is tried";
  EXPECT_EQ(run_with(0, true).decision.action, StopAction::kExit) << "too late for a save";
}

// Updates take 30 s. The end of the one to come is twice as far away, and it may take half as long
// again; where a device is an update behind the host, four times.
TEST(StopAgreement, NextUpdateMustEndBeforeJob) {
  struct {
    int late;
    std::int64_t left_s;
    std::int64_t update;
  } const cases[] = {
      {0, 100, 3},   // 13.5 s for the save and 1.5 x 60 s; the first pace is known in update 3
      {0, 110, 11},  // never
      {1, 150, 6},   // 13.5 s and 1.5 x 120 s
      {1, 200, 11},
  };
  for (const auto& test : cases) {
    const Outcome outcome = Same(RunRanks([&](int) {
      const auto end = ThreadClock::Now() + std::chrono::seconds(test.left_s);
      return Scenario{.options = {.job_end = end, .checkpoints = true},
                      .updates = 10,
                      .micro_steps = 1,
                      .told_s = 30,
                      .late = test.late};
    }));
    EXPECT_EQ(outcome.update, test.update) << test.late << ", " << test.left_s;
    EXPECT_EQ(outcome.decision.action,
              test.update > 10 ? StopAction::kContinue : StopAction::kSaveStop);
  }
}

TEST(StopAgreement, DoesNotWaitForDiskInLastTwoSeconds) {
  const auto comm = MakeSingle();
  const auto now = std::chrono::steady_clock::now();
  const auto ends_in = [&](std::int64_t s) {
    return StopAgreement(*comm, {.job_end = now + std::chrono::seconds(s)}).out_of_time();
  };
  EXPECT_FALSE(StopAgreement(*comm, {}).out_of_time());
  EXPECT_FALSE(ends_in(60));
  EXPECT_TRUE(ends_in(1));
  auto signals = ValueOrThrow(StopSignals::Install({SIGTERM}, kNoBurst));
  const auto budget = [&](double s) {
    return StopAgreement(
               *comm, {.signals = signals.get(), .term_budget = std::chrono::duration<double>(s)})
        .out_of_time();
  };
  EXPECT_FALSE(budget(1)) << "no SIGTERM came";
  raise(SIGTERM);
  EXPECT_FALSE(budget(60));
  EXPECT_TRUE(budget(1));
}

// As with a file system that does not answer.
TEST(StopAgreementDeathTest, ExitIsBounded) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT((void)RunThreadRanks(1, {},
                                   [](Communicator& comm) {
                                     StopAgreement agreement(
                                         comm, {.exit_bound = std::chrono::milliseconds(50)});
                                     agreement.LimitExit(ErrorKind::kTempFail);
                                     std::this_thread::sleep_for(std::chrono::seconds(30));
                                     return Status::Ok();
                                   }),
              testing::ExitedWithCode(75), "rank 0 on .* received a request to exit");
  // In time, nothing happens.
  EXPECT_TRUE(RunThreadRanks(1, {}, [](Communicator& comm) {
                StopAgreement(comm, {}).LimitExit(ErrorKind::kTempFail);
                return Status::Ok();
              }).ok());
}

TEST(StopAgreement, StartStopsAfterStage) {
  auto signals = ValueOrThrow(StopSignals::Install({SIGUSR2}, kNoBurst));
  std::atomic<int> stopped{0};
  ExpectOk(RunThreadRanks(kRanks, {}, [&](Communicator& comm) {
    StopOptions options{.checkpoints = true};
    if (comm.rank() == 1) options.signals = signals.get();
    StopAgreement agreement(comm, options);
    GACCD_RETURN_IF_ERROR(agreement.AfterStage("while the data was opened"));
    if (comm.rank() == 1) RaiseHere(SIGUSR2);
    EXPECT_THAT(agreement.AfterStage("before the first update"),
                IsError(ErrorKind::kTempFail,
                        "stopped by SIGUSR2 (1 of 4 ranks) before the first update, not saved"));
    ++stopped;
    return Status::Ok();
  }));
  EXPECT_EQ(stopped, kRanks);
}

// Batches of 1 s. Nothing of the update before counts: neither the 100 s that its reduction took
// nor the micro-steps after which it was resumed.
TEST(StopAgreement, EvaluationHasItsOwnPace) {
  const auto decide = [](double budget_s, std::int64_t batches) {
    auto signals = ValueOrThrow(StopSignals::Install({SIGTERM}, kNoBurst));
    const auto comm = MakeSingle();
    const auto base = std::chrono::steady_clock::now();
    std::chrono::seconds now(-101);
    StopAgreement agreement(*comm, {.signals = signals.get(),
                                    .term_budget = std::chrono::duration<double>(budget_s),
                                    .checkpoints = true,
                                    .save_guess = std::chrono::duration<double>(1),
                                    .now = [&] { return base + now; }});
    std::vector<double> words(kStopWordCount);
    agreement.BeginUpdate(/*restored=*/7);
    agreement.Pack(words, 8, 0);
    now = std::chrono::seconds(-1);
    agreement.Unpack(words, 101, 1);
    agreement.BeginEvaluation();
    RaiseHere(SIGTERM);
    now = std::chrono::seconds(0);
    return ValueOrThrow(agreement.BetweenBatches(1, batches)).action;
  };
  EXPECT_EQ(decide(60, 4), StopAction::kContinue) << "3 s are left";
  EXPECT_EQ(decide(20, 101), StopAction::kSaveStop) << "100 s are left";
}

TEST(StopAgreement, StopsEvaluationThatDoesNotFit) {
  auto signals = ValueOrThrow(StopSignals::Install({SIGTERM}, kNoBurst));
  std::mutex mutex;
  std::vector<std::int64_t> left_after;
  ExpectOk(RunThreadRanks(kRanks, {}, [&](Communicator& comm) {
    StopOptions options{.term_budget = std::chrono::duration<double>(30),
                        .checkpoints = true,
                        .save_guess = std::chrono::duration<double>(5),
                        .now = ThreadClock::Now};
    if (comm.rank() == 1) options.signals = signals.get();
    ThreadClock::MeetSystemClock(std::chrono::milliseconds(3));
    StopAgreement agreement(comm, options);
    agreement.BeginEvaluation();
    constexpr std::int64_t kBatches = 100'000;
    for (std::int64_t batch = 1; batch <= kBatches; ++batch) {
      ThreadClock::Advance(std::chrono::milliseconds(1));
      if (comm.rank() == 1 && batch == 3) RaiseHere(SIGTERM);
      GACCD_ASSIGN_OR_RETURN(const StopDecision here, agreement.BetweenBatches(batch, kBatches));
      if (here.action == StopAction::kContinue) continue;
      EXPECT_EQ(here.action, StopAction::kSaveStop);
      EXPECT_EQ(agreement.AtBoundary().action, StopAction::kSaveStop);
      const std::lock_guard lock(mutex);
      left_after.push_back(batch);
      break;
    }
    return Status::Ok();
  }));
  ASSERT_EQ(left_after.size(), kRanks);
  for (const std::int64_t batch : left_after)
    EXPECT_EQ(batch, 501) << "asked after 1, then 0.5 s later";
}

}  // namespace
}  // namespace gaccd
