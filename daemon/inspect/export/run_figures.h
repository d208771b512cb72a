// Figures of a run over all its attempts, summed from its events.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "collectives/base/json.h"
#include "daemon/inspect/watch/event.h"
#include "daemon/inspect/watch/step_sum.h"

namespace gaccd {

// The time of a run that is not training, with Google's names for "badput". Recovery: from the end
// of an attempt to the start of the next. Lost progress: updates that a later attempt repeated.
// Other: evaluations and time between updates.
enum class Badput : std::uint8_t {
  kInit,
  kData,
  kCheckpointSave,
  kCheckpointLoad,
  kLostProgress,
  kRecovery,
  kOther
};
inline constexpr std::array<const char*, 7> kBadputNames{
    "init", "data", "checkpoint_save", "checkpoint_load", "lost_progress", "recovery", "other"};

// Counters never decrease while events are added.
struct RunFigures {
  std::optional<Event> start;  // the newest run_start; so are plan, step and committed save
  std::optional<Event> plan;
  std::optional<Event> target;     // the newest stage of batch.target_schedule after the first
  std::optional<Event> rebalance;  // the newest since that plan
  std::optional<Event> step;
  std::optional<Event> save;
  std::optional<WallTime> begin;  // of the run
  std::int64_t attempts = 0;      // starts, including those without events
  std::int64_t updates = 0;       // including repeated ones
  std::int64_t lost_updates = 0;
  double samples = 0;
  double tokens = 0;
  double flops = 0;  // of matrix products for all these samples
  std::int64_t skipped = 0;
  std::int64_t unlabelled = 0;  // skipped because no label of their samples counts
  std::int64_t nonfinite_losses = 0;
  std::int64_t nonfinite_gradients = 0;
  std::int64_t failed_saves = 0;
  Histogram update_s;
  Histogram save_s;
  std::map<std::string, double> phase_s;  // "data", ...
  // The newest value of each metric, without lost ones; may be NaN.
  std::map<std::string, double> evals;
  std::map<std::string, std::int64_t> stragglers;  // updates, by host
  std::map<std::string, std::int64_t> errors;      // failures of ranks, by ErrorKindName, "signal"
  std::map<std::string, std::int64_t> log_lines;   // "warning", "error"
  double elapsed_s = 0;  // of attempts and recoveries, as a clock may be set back between attempts
  double good_s = 0;     // of updates that count, without waiting for data
  // good_s + badput_s = elapsed_s, except for the time since the newest event that explains it.
  std::array<double, kBadputNames.size()> badput_s{};

  // A number of the newest stage (key in `target`), or, without stages, of the plan (key in
  // `plan`).
  [[nodiscard]] std::optional<double> BatchNumber(const char* target_key,
                                                  const char* plan_key) const;
};

// Not thread-safe.
class FigureSum {
 public:
  // A value of a metric after so many updates.
  struct Evaluation {
    std::int64_t step = 0;
    double value = 0;  // may be NaN
  };

  // In the order of EventStream.
  void Add(const Event& event);

  // The sum without the durations of the oldest updates. After FromJson() it continues exactly,
  // unless an attempt goes back to one of them.
  [[nodiscard]] Json ToJson() const;
  // nullopt if `json` is not from ToJson().
  [[nodiscard]] static std::optional<FigureSum> FromJson(const Json& json);
  // Whether an attempt went back to such an update, so that the figures are wrong.
  [[nodiscard]] bool went_back_too_far() const { return went_back_too_far_; }

  // attempts: CountStarts() of the run.
  [[nodiscard]] RunFigures Finish(std::size_t attempts) &&;

 private:
  static constexpr std::size_t kKeptUpdates = 1000;  // in ToJson()
  static constexpr std::size_t kKeptEvaluations = 16;

  template <typename Io, typename Sum>
  static void Describe(Io& io, Sum& sum);
  double& Bad(Badput kind) { return figures_.badput_s[static_cast<std::size_t>(kind)]; }
  void BeginAttempt(const Event& event);
  // The time before the first update of the attempt; 0 after it, because AddSteps() added it.
  [[nodiscard]] double InitSeconds(WallTime until) const;
  // The time of the run until then, which is in the current attempt.
  [[nodiscard]] double Elapsed(WallTime until) const {
    return earlier_s_ + SecondsBetween(attempt_begin_, until);
  }
  // Adds the time of the run until then that is not explained otherwise.
  void CountOther(WallTime until);
  void AddSteps(const Event& event);
  void AddSave(const Event& event);
  void AddFailure(const Event& event);
  // Marks the updates after this one as lost, and drops their evaluations.
  void RewindTo(std::int64_t step);

  RunFigures figures_;
  // Useful time of each update that is not lost, from 1. NaN: not computed in these attempts.
  std::vector<double> done_s_;
  std::size_t unknown_ = 0;  // number of first elements of done_s_ that are unknown
  // The newest ones of each metric that are not lost, as the next attempt may go back.
  std::map<std::string, std::vector<Evaluation>> evaluations_;
  bool went_back_too_far_ = false;
  std::string attempt_;
  bool has_step_ = false;  // the attempt has an update
  WallTime attempt_begin_;
  double earlier_s_ = 0;          // time of the run before that
  double loaded_s_ = 0;           // time of loading checkpoints in the attempt
  WallTime until_;                // the time of the attempt is explained up to here
  std::optional<WallTime> last_;  // the last event of the attempt
};

}  // namespace gaccd
