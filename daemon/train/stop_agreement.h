// StopAgreement: what each rank wishes (signals, the files STOP and SAVE, the end of the job)
// becomes one decision, the same on all ranks at the same place.
//
//   place                     the wishes travel                          stops there
//   boundary of two updates   on the update's reduction, as its news     with a save, if it fits
//   between micro-steps       by an exchange of their own, about every   when there is time for a
//   and evaluation batches    0.5 s: never while updates are shorter     save but not for the rest
//   start-up                  by an exchange, after each stage           always
//
// All that decides is in the summed news: no rank looks at its own clock or flags when it decides.
// A save fits when the shortest time left on any rank covers it: SaveFits() of every rank is
// summed.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/base/result.h"
#include "collectives/comm/communicator.h"
#include "daemon/control/request_files.h"
#include "daemon/control/stop_signals.h"
#include "daemon/control/time_left.h"
#include "daemon/train/news.h"

namespace gaccd {

enum class StopAction : std::uint8_t {
  kGoOn,
  kSave,      // save here and go on
  kSaveStop,  // save here and leave
  kLeave,     // leave without a save
};

struct StopDecision {
  StopAction action = StopAction::kGoOn;
  // Of kSaveStop and kLeave. kTempFail: to be requeued; kNoRequeue: STOP; kInterrupted: SIGINT
  // twice.
  ErrorKind kind = ErrorKind::kTempFail;
  std::string reason;  // "SIGTERM (8 of 8 ranks)"; empty when no one wishes anything

  [[nodiscard]] bool stops() const {
    return action == StopAction::kSaveStop || action == StopAction::kLeave;
  }
  // What the run ends with. where: "after update 12". saved: what became of the save.
  [[nodiscard]] Status ToStatus(std::string_view where, bool saved) const;
};

// Pure: of summed news. checkpoints: the run can save.
[[nodiscard]] StopDecision DecideAtBoundary(const StopNews& news, bool checkpoints, int ranks);
// Inside a window of micro-steps, or an evaluation: kGoOn also when the end of it comes in time.
[[nodiscard]] StopDecision DecideInside(const StopNews& news, bool checkpoints, int ranks);

// Counts steps; tells when the next exchange is due, alike on all ranks, from an agreed pace.
class AskClock {
 public:
  explicit AskClock(double every_s) : every_s_(every_s) {}
  // One more step is done.
  [[nodiscard]] bool Due();
  // The ranks heard of each other, and know this pace (0: keep the one before).
  void Asked(double pace_s);

 private:
  double every_s_;
  double pace_s_ = 0;
  std::int64_t steps_ = 0;  // since they last heard of each other
};

struct StopOptions {
  StopSignals* signals = nullptr;            // null: none are looked at
  std::string run_dir;                       // with STOP and SAVE; empty: none
  std::optional<std::int64_t> job_end_time;  // seconds since 1970
  std::chrono::duration<double> term_budget{25};
  bool checkpoints = false;
  std::function<void(const std::string&)> warn = {};  // for people
  // Often enough for a grace of a few seconds, seldom enough to cost nothing.
  std::chrono::duration<double> ask_every{0.5};
  // Until one was measured.
  std::chrono::duration<double> save_guess{5};
};

// One per rank, on the training thread. AfterStage() and the two Between...() are collective.
class StopAgreement {
 public:
  // Both outlive it.
  StopAgreement(Communicator& comm, const StopOptions& options);
  virtual ~StopAgreement() = default;
  StopAgreement(const StopAgreement&) = delete;
  StopAgreement& operator=(const StopAgreement&) = delete;

  // Start-up: after a stage that may have taken long. OK, or what all ranks leave with.
  Status AfterStage(std::string_view stage);

  // Before an update: this rank's part of its news. steps: micro-steps of an update; underway:
  // updates that will have ended before the decision.
  void Tell(std::span<double> news, std::int64_t steps, std::int64_t underway);
  // After it, from its figures: the summed news, and how long it took (rank 0's counts).
  void Hear(std::span<const double> summed, double update_s, std::int64_t steps);
  // What follows from all that was heard.
  [[nodiscard]] StopDecision AtBoundary() const;

  // After micro-step `done` (from 1) of `steps`; not after the last. Decides what is to be done
  // before the next one: kSaveStop is a save inside the window. kGoOn may still stop the run at
  // the end of the update. Virtual, so that tests can stop where they like.
  virtual Result<StopDecision> BetweenMicroSteps(std::int64_t done, std::int64_t steps);
  void BeginEvaluation();
  // The same for the batches of an evaluation: `steps` is the least that any rank has, and nobody
  // asks after more.
  Result<StopDecision> BetweenBatches(std::int64_t done, std::int64_t steps);

  // So long took the last save until it was safe; 0: not known.
  void ExpectSave(double seconds) {
    if (seconds > 0) save_s_ = seconds;
  }
  // A save was begun: the wishes to save are fulfilled.
  void Saved();

 private:
  using Clock = std::chrono::steady_clock;
  StopNews Mine(double until_save_s, double rest_s);
  void Take(const StopNews& news);
  Result<StopNews> Exchange(const StopNews& mine);
  Result<StopDecision> Ask(AskClock& clock, std::int64_t done, std::int64_t steps);

  Communicator& comm_;
  StopOptions options_;
  RequestFiles files_;
  double save_s_;        // expected
  double pace_s_ = 0;    // this rank's own, of micro-steps
  bool warned_ = false;  // that there is nothing to save with
  StopNews heard_;       // the same on all ranks
  AskClock updates_;
  AskClock evaluation_;
  Clock::time_point phase_began_ = Clock::now();
};

}  // namespace gaccd
