// StopAgreement: combines the requests of all ranks (signals, the files STOP and SAVE, the end of
// the job) into one decision, the same on all ranks at the same position.
//
//   position                 how requests are exchanged                   stops there
//   boundary of two updates  as control words of the update's reduction   with a save, if it fits
//   between micro-steps      by separate exchanges, about every 0.5 s;    when there is time for a
//   and evaluation batches   never if updates are shorter                 save but not for the rest
//   start-up                 by an exchange after each stage              always
//
// The job's limit is a request as soon as the next update, or inside one the next exchange, would
// end too late for a save.
//
// Decisions depend only on the summed words: no rank uses its own clock or flags. A save fits if
// the shortest time left on any rank is sufficient: SaveFits() of every rank is summed.
//
// A save between micro-steps also contains the accumulators of every rank, which can be many times
// larger than another save. If only the latter fits, the state before the update is saved, and the
// update is repeated.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "collectives/base/result.h"
#include "collectives/base/time.h"
#include "collectives/comm/communicator.h"
#include "collectives/liveness/deadline/deadline.h"
#include "daemon/stop/stop_requests.h"
#include "daemon/stop/stop_words.h"

namespace gaccd {

enum class StopAction : std::uint8_t {
  kContinue,
  kSave,      // save and continue
  kSaveStop,  // save and exit
  // Inside an update: save the state before it, without accumulators, and exit.
  kSaveBeforeStop,
  kExit,  // exit without a save
};

struct StopDecision {
  StopAction action = StopAction::kContinue;
  // For decisions that stop. kTempFail: to be requeued; kNoRequeue: STOP; kInterrupted: a second
  // request whose last signal was SIGINT.
  ErrorKind kind = ErrorKind::kTempFail;
  std::string reason;   // "SIGTERM (8 of 8 ranks)"; empty without a request
  std::string unsaved;  // for kExit: why nothing is saved; empty if `reason` says it

  [[nodiscard]] bool saves_and_stops() const {
    return action == StopAction::kSaveStop || action == StopAction::kSaveBeforeStop;
  }
  [[nodiscard]] bool stops() const { return saves_and_stops() || action == StopAction::kExit; }
  // The final status of the run. where: "after update 12". saved: whether the save succeeded.
  [[nodiscard]] Status ToStatus(std::string_view where, bool saved) const;
};

// Pure functions of summed words. checkpoints: whether the run can save.
[[nodiscard]] StopDecision DecideAtBoundary(const StopWords& words, bool checkpoints, int ranks);
// Inside a window of micro-steps, or an evaluation: kContinue also if its end will be reached in
// time.
[[nodiscard]] StopDecision DecideInside(const StopWords& words, bool checkpoints, int ranks);

// Counts steps and decides when the next exchange is due, the same on all ranks, from an agreed
// pace.
class ExchangeClock {
 public:
  explicit ExchangeClock(double every_s) : every_s_(every_s) {}
  // Call after each step. hurry: the run is about to stop, and the next exchange is earlier.
  [[nodiscard]] bool Due(bool hurry = false);
  // Call after an exchange with the agreed pace (0: keep the previous one).
  void Exchanged(double pace_s);

 private:
  double every_s_;
  double pace_s_ = 0;
  std::int64_t steps_ = 0;  // since the last exchange
};

struct StopOptions {
  StopSignals* signals = nullptr;  // null: no signals
  std::string run_dir;             // contains STOP and SAVE; empty: none
  std::optional<std::chrono::steady_clock::time_point> job_end = {};  // none: no limit
  std::chrono::duration<double> term_budget{25};
  bool checkpoints = false;
  std::function<void(const std::string&)> warn = {};  // messages for users
  std::chrono::milliseconds poll_every{1000};         // period of checks for the files in run_dir
  // A run that exits without a save, or aborts one, exits within this time, whatever it waits for.
  std::chrono::milliseconds exit_bound{10'000};
  // Frequent enough for a grace period of a few seconds, rare enough to cost nothing.
  std::chrono::duration<double> exchange_every{0.5};
  // Expected duration of a save until one was measured. An update is interrupted early enough for
  // such a save, but a save is also tried if there is less time.
  std::chrono::duration<double> save_guess{5};
  NowFunction now = std::chrono::steady_clock::now;
};

// One per rank, on the training thread. AfterStage() and the Between...() functions are collective.
class StopAgreement {
 public:
  // `comm` and options.signals must outlive it.
  StopAgreement(Communicator& comm, const StopOptions& options);
  virtual ~StopAgreement() = default;
  StopAgreement(const StopAgreement&) = delete;
  StopAgreement& operator=(const StopAgreement&) = delete;

  // During start-up, after a stage that may take a long time. OK, or the status with which all
  // ranks exit.
  Status AfterStage(std::string_view stage);

  // done: micro-steps of the update done by an earlier attempt.
  void BeginUpdate(std::int64_t done = 0) {
    phase_began_ = options_.now();
    done_before_ = done;
  }
  // At the end of an update, just before its reduction, so that recent requests are included:
  // writes this rank's words. in_flight: updates that a device runs behind the host
  // (Engine::updates_in_flight()).
  void Pack(std::span<double> words, std::int64_t micro_steps, std::int64_t in_flight);
  // After it: reads the summed words of its result, and how long its micro-steps took (rank 0's
  // value counts), some of which may have been done by an earlier attempt.
  void Unpack(std::span<const double> summed, double update_s, std::int64_t micro_steps);
  // The decision for all requests so far.
  [[nodiscard]] virtual StopDecision AtBoundary() const;

  // After micro-step `done` (from 1) of `micro_steps`; not after the last one. Decides what to do
  // before the next one: kSaveStop is a save inside the update. With kContinue the run may still
  // stop at the end of the update. Virtual for tests.
  virtual Result<StopDecision> BetweenMicroSteps(std::int64_t done, std::int64_t micro_steps);
  void BeginEvaluation();
  // Additional collective work at every exchange inside an update or an evaluation; null: none.
  void SetPeriodicWork(std::function<Status()> work) { periodic_work_ = std::move(work); }
  // The same for the batches of an evaluation. batches: the minimum over the ranks; no exchange
  // happens after that.
  virtual Result<StopDecision> BetweenBatches(std::int64_t done, std::int64_t batches);

  // seconds: duration of the last save until it was safe; 0: not known. window_ratio: bytes of a
  // save inside an update / bytes of another save.
  void ExpectSave(double seconds, double window_ratio) {
    if (seconds > 0) save_s_ = measured_save_s_ = seconds;
    window_ratio_ = window_ratio;
  }
  // A save has begun: requests to save are fulfilled.
  void Saved();
  // Whether this rank received a second request and must not wait for anything. Thread-safe.
  [[nodiscard]] bool stop_now_requested() const {
    return options_.signals != nullptr && options_.signals->request() == StopRequest::kStopNow;
  }
  // Whether there is no time left to wait for a disk. Thread-safe.
  [[nodiscard]] bool out_of_time() const;
  // From now on the process exits within options.exit_bound with the exit code of `kind`, unless
  // this object is destroyed before: a file system that does not respond cannot delay the exit.
  void LimitExit(ErrorKind kind);

 private:
  using Clock = std::chrono::steady_clock;
  // Seconds since `start` on the clock of the options.
  [[nodiscard]] double Since(Clock::time_point start) const {
    return SecondsSince(start, options_.now());
  }
  [[nodiscard]] TimeLeft FindTimeLeftNow() const;
  // Positions at which the run can stop: seconds from now.
  struct StopPoints {
    double save_s = 0;  // the next one
    double rest_s = 0;  // the end of the current update or evaluation
    double next_s = 0;  // the next exchange, if the run continues
  };
  StopWords LocalWords(const StopPoints& ahead);
  void Apply(const StopWords& words);
  Result<StopWords> Exchange(const StopWords& mine);
  // Between two steps, after `done` of `steps`. Returns their pace, the same on all ranks.
  Result<double> ExchangeInside(std::int64_t done, std::int64_t steps);

  Communicator& comm_;
  StopOptions options_;
  std::optional<ExitTimer> exit_limit_;
  RequestFiles files_;
  std::function<Status()> periodic_work_;
  double save_s_;               // expected
  double measured_save_s_ = 0;  // 0: not measured
  double window_ratio_ = 1;
  double pace_s_ = 0;    // per micro-step, on this rank
  double tail_s_ = 0;    // of the last update, after its last micro-step: reduction, optimiser
  bool warned_ = false;  // that nothing can be saved
  StopWords agreed_;     // the same on all ranks
  ExchangeClock updates_;
  ExchangeClock evaluation_;
  Clock::time_point phase_began_;
  // Empty while a device has updates in flight.
  std::optional<Clock::time_point> packed_ = {};
  std::int64_t done_before_ = 0;  // steps of this phase done by an earlier attempt
};

}  // namespace gaccd
