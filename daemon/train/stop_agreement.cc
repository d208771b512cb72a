#include "daemon/train/stop_agreement.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "collectives/base/strings.h"

namespace gaccd {
namespace {

// Beside the save: until the wish is heard, and until the ranks have left.
constexpr double kTimeLimitReserveS = 5;

bool WantsStop(const StopNews& news) {
  return news.stop > 0 || news.stop_file > 0 || news.time_up > 0;
}

bool WantsAnything(const StopNews& news) {
  return WantsStop(news) || news.stop_now > 0 || news.save > 0;
}

void Add(std::string_view what, std::string* list) {
  *list += StrCat(list->empty() ? "" : ", ", what);
}

std::string ReasonOf(const StopNews& news, int ranks) {
  std::string reason;
  for (std::size_t i = 0; i < kNewsSignals.size(); ++i) {
    if (news.signals[i] <= 0) continue;
    Add(StrCat(SignalName(kNewsSignals[i]), " (", std::llround(news.signals[i]), " of ", ranks,
               ranks == 1 ? " rank)" : " ranks)"),
        &reason);
  }
  if (news.stop_file > 0) Add("the file STOP", &reason);
  if (news.time_up > 0) Add("the job's time is up", &reason);
  if (news.stop_now > 0) Add("asked twice", &reason);
  if (reason.empty() && news.save > 0) Add("a save was asked for", &reason);
  return reason;
}

// What does not depend on the place.
StopDecision Undecided(const StopNews& news, int ranks) {
  StopDecision decision{.reason = ReasonOf(news, ranks)};
  if (news.stop_now > 0) {
    decision.action = StopAction::kLeave;
    if (news.interrupted > 0) decision.kind = ErrorKind::kInterrupted;
  }
  if (news.stop_file > 0) decision.kind = ErrorKind::kNoRequeue;
  return decision;
}

double Since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

Status StopDecision::ToStatus(std::string_view where, bool saved) const {
  return {kind, StrCat("stopped by ", reason, " ", where, saved ? ", saved" : ", not saved")};
}

StopDecision DecideAtBoundary(const StopNews& news, bool checkpoints, int ranks) {
  StopDecision decision = Undecided(news, ranks);
  if (decision.stops()) return decision;
  if (WantsStop(news)) {
    const bool fits = checkpoints && news.save_misfit == 0;
    decision.action = fits ? StopAction::kSaveStop : StopAction::kLeave;
  } else if (news.save > 0 && checkpoints) {
    decision.action = StopAction::kSave;
  }
  return decision;
}

StopDecision DecideInside(const StopNews& news, bool checkpoints, int ranks) {
  StopDecision decision = Undecided(news, ranks);
  if (decision.stops() || !WantsStop(news)) return decision;
  if (!checkpoints || news.save_misfit > 0) {
    decision.action = StopAction::kLeave;
  } else if (news.rest_misfit > 0) {
    decision.action = StopAction::kSaveStop;
  }
  return decision;
}

bool AskClock::Due() {
  ++steps_;
  if (pace_s_ > 0) return static_cast<double>(steps_) * pace_s_ >= every_s_;
  return std::has_single_bit(static_cast<std::uint64_t>(steps_));
}

void AskClock::Asked(double pace_s) {
  if (pace_s > 0) {
    pace_s_ = pace_s;
    steps_ = 0;
  }
}

StopAgreement::StopAgreement(Communicator& comm, const StopOptions& options)
    : comm_(comm),
      options_(options),
      files_(comm.rank() == 0 ? options.run_dir : std::string()),
      save_s_(options.save_guess.count()),
      updates_(options.ask_every.count()),
      evaluation_(options.ask_every.count()) {}

// until_save_s, rest_s: from now to a save here, and to one after what has been begun.
StopNews StopAgreement::Mine(double until_save_s, double rest_s) {
  using Seconds = TimeLeft::Seconds;
  StopNews news{.pace_s = comm_.rank() == 0 ? pace_s_ : 0};
  std::optional<Seconds> since_term;
  if (const StopSignals* signals = options_.signals) {
    const StopWish wish = signals->wish();
    since_term = signals->since_term();
    news.save = wish == StopWish::kSave ? 1 : 0;
    news.stop = wish == StopWish::kStop || wish == StopWish::kStopNow ? 1 : 0;
    news.stop_now = wish == StopWish::kStopNow ? 1 : 0;
    news.interrupted = news.stop_now > 0 && signals->stop_signal() == SIGINT ? 1 : 0;
    for (std::size_t i = 0; i < kNewsSignals.size(); ++i) {
      news.signals[i] = signals->came(kNewsSignals[i]) ? 1 : 0;
    }
  }
  const StopWish file = files_.wish();
  news.stop_file = file == StopWish::kStop ? 1 : 0;
  if (file == StopWish::kSave) news.save = 1;

  const double now =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  const TimeLeft left = FindTimeLeft(options_.job_end_time, now, since_term ? SIGTERM : 0,
                                     since_term.value_or(Seconds(0)), options_.term_budget);
  const auto fits_after = [&](double seconds) {
    TimeLeft then = left;
    if (then.job) *then.job -= Seconds(seconds);
    if (then.grace) *then.grace -= Seconds(seconds);
    return SaveFits(then, Seconds(save_s_));
  };
  news.save_misfit = fits_after(until_save_s) ? 0 : 1;
  news.rest_misfit = fits_after(rest_s) ? 0 : 1;
  // Without checkpoints nothing is won by leaving early.
  if (options_.checkpoints && left.job) {
    const double needed =
        1.5 * save_s_ + 1 + kTimeLimitReserveS + 2 * std::max(until_save_s, rest_s);
    news.time_up = left.job->count() < needed ? 1 : 0;
  }
  return news;
}

Result<StopNews> StopAgreement::Exchange(const StopNews& mine) {
  std::array<double, kStopNews> words{};
  Encode(mine, words);
  const MutableBuffer view = View(std::span<double>(words));
  GACCD_RETURN_IF_ERROR(comm_.AllReduceSum(view, view));
  return DecodeStopNews(words);
}

Status StopAgreement::AfterStage(std::string_view stage) {
  GACCD_ASSIGN_OR_RETURN(const StopNews news, Exchange(Mine(0, 0)));
  const StopDecision decision = DecideAtBoundary(news, false, comm_.size());
  return decision.stops() ? decision.ToStatus(stage, false) : Status::Ok();
}

void StopAgreement::Tell(std::span<double> news, std::int64_t steps, std::int64_t underway) {
  // The agreed pace: that of rank 0.
  const double ahead_s = heard_.pace_s * static_cast<double>(steps * (underway + 1));
  Encode(Mine(ahead_s, ahead_s), news);
  phase_began_ = Clock::now();
}

// Wishes stay until they are fulfilled: one that came between micro-steps is not in the news of the
// update, which were told before.
void StopAgreement::Take(const StopNews& news) {
  heard_ = WantsAnything(heard_) ? Merge(heard_, news) : news;
  if (heard_.save > 0 && !options_.checkpoints) {
    if (!warned_ && comm_.rank() == 0 && options_.warn) {
      options_.warn(
          "a save was asked for, but this run keeps no checkpoints: --save-every-seconds");
    }
    warned_ = true;
    Saved();
  }
}

void StopAgreement::Hear(std::span<const double> summed, double update_s, std::int64_t steps) {
  if (steps > 0) pace_s_ = update_s / static_cast<double>(steps);
  const double known = heard_.pace_s;
  Take(DecodeStopNews(summed));
  if (heard_.pace_s <= 0) heard_.pace_s = known;
  updates_.Asked(heard_.pace_s);
}

StopDecision StopAgreement::AtBoundary() const {
  return DecideAtBoundary(heard_, options_.checkpoints, comm_.size());
}

Result<StopDecision> StopAgreement::Ask(AskClock& clock, std::int64_t done, std::int64_t steps) {
  const double pace_s = Since(phase_began_) / static_cast<double>(done);
  StopNews mine = Mine(0, pace_s * static_cast<double>(steps - done));
  mine.pace_s = comm_.rank() == 0 ? pace_s : 0;
  GACCD_ASSIGN_OR_RETURN(const StopNews news, Exchange(mine));
  clock.Asked(news.pace_s);
  const double of_updates = heard_.pace_s;
  Take(news);
  heard_.pace_s = &clock == &updates_ ? news.pace_s : of_updates;
  return DecideInside(heard_, options_.checkpoints, comm_.size());
}

Result<StopDecision> StopAgreement::BetweenMicroSteps(std::int64_t done, std::int64_t steps) {
  if (done >= steps || !updates_.Due()) return StopDecision{};
  return Ask(updates_, done, steps);
}

void StopAgreement::BeginEvaluation() {
  phase_began_ = Clock::now();
  evaluation_ = AskClock(options_.ask_every.count());
}

Result<StopDecision> StopAgreement::BetweenBatches(std::int64_t done, std::int64_t steps) {
  if (done >= steps || !evaluation_.Due()) return StopDecision{};
  return Ask(evaluation_, done, steps);
}

void StopAgreement::Saved() {
  heard_.save = 0;
  if (options_.signals != nullptr) options_.signals->Saved();
  if (const Status removed = files_.Saved(); !removed.ok() && options_.warn) {
    options_.warn(StrCat("the request is served, but its file stays: ", removed.message()));
  }
}

}  // namespace gaccd
