// StopAgreement: what each rank requests (signals, the files STOP and SAVE, the end of the job)
// becomes one decision, the same on all ranks at the same place.
//
//   place                     the requests travel                          stops there
//   boundary of two updates   on the update's reduction, as its words     with a save, if it fits
//   between micro-steps       by an exchange of their own, about every   when there is time for a
//   and evaluation batches    0.5 s: never while updates are shorter     save but not for the rest
//   start-up                  by an exchange, after each stage           always
//
// All that decides is in the summed words: no rank looks at its own clock or flags when it decides.
// A save fits when the shortest time left on any rank covers it: SaveFits() of every rank is
// summed.
//
// A save between micro-steps also holds what every rank has accumulated, which can be many times
// the bytes of another save. Where only another one fits, the state before the update is saved, and
// the update is repeated.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "collectives/base/result.h"
#include "collectives/base/seconds.h"
#include "collectives/comm/communicator.h"
#include "collectives/liveness/deadline/exit_timer.h"
#include "daemon/stop/request_files.h"
#include "daemon/stop/stop_signals.h"
#include "daemon/stop/stop_words.h"
#include "daemon/stop/time_left.h"

namespace gaccd {

enum class StopAction : std::uint8_t {
  kContinue,
  kSave,      // save here and continue
  kSaveStop,  // save here and exit
  // Inside an update: save the state before it, without the accumulated gradients, and exit.
  kSaveBeforeStop,
  kExit,  // exit without a save
};

struct StopDecision {
  StopAction action = StopAction::kContinue;
  // Of those that stop. kTempFail: to be requeued; kNoRequeue: STOP; kInterrupted: a second
  // request, and the last signal was SIGINT.
  ErrorKind kind = ErrorKind::kTempFail;
  std::string reason;   // "SIGTERM (8 of 8 ranks)"; empty when no one requests anything
  std::string unsaved;  // of kExit: why nothing is saved; empty when `reason` says it

  [[nodiscard]] bool saves_and_stops() const {
    return action == StopAction::kSaveStop || action == StopAction::kSaveBeforeStop;
  }
  [[nodiscard]] bool stops() const { return saves_and_stops() || action == StopAction::kExit; }
  // What the run ends with. where: "after update 12". saved: whether the save succeeded.
  [[nodiscard]] Status ToStatus(std::string_view where, bool saved) const;
};

// Pure: of summed words. checkpoints: the run can save.
[[nodiscard]] StopDecision DecideAtBoundary(const StopWords& words, bool checkpoints, int ranks);
// Inside a window of micro-steps, or an evaluation: kContinue also when the end of it comes in
// time.
[[nodiscard]] StopDecision DecideInside(const StopWords& words, bool checkpoints, int ranks);

// Counts steps and decides when the next exchange is due: the same on all ranks, from an agreed
// pace.
class ExchangeClock {
 public:
  explicit ExchangeClock(double every_s) : every_s_(every_s) {}
  // One more step is done. hurry: the run is to stop, and the next exchange comes sooner.
  [[nodiscard]] bool Due(bool hurry = false);
  // The ranks have exchanged their words, and agree on this pace (0: keep the one before).
  void Exchanged(double pace_s);

 private:
  double every_s_;
  double pace_s_ = 0;
  std::int64_t steps_ = 0;  // since the last exchange
};

struct StopOptions {
  StopSignals* signals = nullptr;  // null: no signals
  std::string run_dir;             // with STOP and SAVE; empty: none
  std::optional<std::chrono::steady_clock::time_point> job_end = {};  // none: no limit
  std::chrono::duration<double> term_budget{25};
  bool checkpoints = false;
  std::function<void(const std::string&)> warn = {};  // for people
  std::chrono::milliseconds poll_every{1000};         // for the files in run_dir
  // A run that exits without a save, or gives one up, has exited after this time, whatever it waits
  // for.
  std::chrono::milliseconds exit_bound{10'000};
  // Often enough for a grace of a few seconds, seldom enough to cost nothing.
  std::chrono::duration<double> exchange_every{0.5};
  // Until one was measured. An update is interrupted early enough for a save that takes this long,
  // but a save is also tried when there is less time.
  std::chrono::duration<double> save_guess{5};
  NowFunction now = std::chrono::steady_clock::now;
};

// One per rank, on the training thread. AfterStage() and the two Between...() are collective.
class StopAgreement {
 public:
  // `comm` and options.signals outlive it.
  StopAgreement(Communicator& comm, const StopOptions& options);
  virtual ~StopAgreement() = default;
  StopAgreement(const StopAgreement&) = delete;
  StopAgreement& operator=(const StopAgreement&) = delete;

  // Start-up: after a stage that may have taken long. OK, or the status that all ranks exit with.
  Status AfterStage(std::string_view stage);

  // done: micro-steps of it that an attempt before has done.
  void BeginUpdate(std::int64_t done = 0) {
    phase_began_ = options_.now();
    done_before_ = done;
  }
  // At the end of an update, just before its reduction, so that what was asked for meanwhile is
  // heard at once: this rank's part of its words. in_flight: updates that a device runs ahead of
  // the host (Engine::updates_in_flight()).
  void Pack(std::span<double> words, std::int64_t micro_steps, std::int64_t in_flight);
  // After it, from its result: the summed words, and how long its micro-steps took (rank 0's
  // counts), of which some were perhaps done by an attempt before.
  void Unpack(std::span<const double> summed, double update_s, std::int64_t micro_steps);
  // The decision that follows from all requests so far.
  [[nodiscard]] virtual StopDecision AtBoundary() const;

  // After micro-step `done` (from 1) of `micro_steps`; not after the last. Decides what is to be
  // done before the next one: kSaveStop is a save inside the window. kContinue may still stop the
  // run at the end of the update. Virtual, so that tests can stop where they like.
  virtual Result<StopDecision> BetweenMicroSteps(std::int64_t done, std::int64_t micro_steps);
  void BeginEvaluation();
  // Collective work that the ranks also do at every exchange inside an update or an evaluation;
  // null: none.
  void SetPeriodicWork(std::function<Status()> work) { periodic_work_ = std::move(work); }
  // The same for the batches of an evaluation: `batches` is the least that any rank has, and nobody
  // asks after more.
  virtual Result<StopDecision> BetweenBatches(std::int64_t done, std::int64_t batches);

  // So long took the last save until it was safe; 0: not known. window_ratio: the bytes of a save
  // inside an update / those of another.
  void ExpectSave(double seconds, double window_ratio) {
    if (seconds > 0) save_s_ = measured_save_s_ = seconds;
    window_ratio_ = window_ratio;
  }
  // A save was begun: the requests to save are fulfilled.
  void Saved();
  // This rank received a second request: it waits for nothing any more. Any thread.
  [[nodiscard]] bool asked_twice() const {
    return options_.signals != nullptr && options_.signals->request() == StopRequest::kStopNow;
  }
  // There is no time to wait for a disk. Any thread.
  [[nodiscard]] bool out_of_time() const;
  // From now on the process exits within options.exit_bound, with the exit code of `kind`, unless
  // this object is destroyed before: a file system that does not answer cannot delay the exit.
  void LimitExit(ErrorKind kind);

 private:
  using Clock = std::chrono::steady_clock;
  // Seconds on the clock of the options.
  [[nodiscard]] double Since(Clock::time_point start) const {
    return std::chrono::duration<double>(options_.now() - start).count();
  }
  [[nodiscard]] TimeLeft FindTimeLeftNow() const;
  // The places where the run can stop: seconds from now.
  struct StopPoints {
    double save_s = 0;  // the next
    double rest_s = 0;  // the one after what was begun
    double next_s = 0;  // that after this, should the run continue
  };
  StopWords LocalWords(const StopPoints& ahead);
  void Apply(const StopWords& words);
  Result<StopWords> Exchange(const StopWords& mine);
  // Between two of `steps`, after `done`. Returns their pace, the same on all ranks.
  Result<double> ExchangeInside(std::int64_t done, std::int64_t steps);

  Communicator& comm_;
  StopOptions options_;
  std::optional<ExitTimer> exit_limit_;
  RequestFiles files_;
  std::function<Status()> periodic_work_;
  double save_s_;               // expected
  double measured_save_s_ = 0;  // 0: none was measured
  double window_ratio_ = 1;
  double pace_s_ = 0;    // this rank's own, of micro-steps
  double tail_s_ = 0;    // of the last update, from its last micro-step on: reduction, optimiser
  bool warned_ = false;  // that there is nothing to save with
  StopWords agreed_;     // the same on all ranks
  ExchangeClock updates_;
  ExchangeClock evaluation_;
  Clock::time_point phase_began_;
  // None while a device has updates in flight.
  std::optional<Clock::time_point> packed_ = {};
  std::int64_t done_before_ = 0;  // of this phase, by an attempt before
};

}  // namespace gaccd
