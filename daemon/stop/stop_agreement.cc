#include "daemon/stop/stop_agreement.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "collectives/base/seconds.h"
#include "collectives/base/strings.h"

namespace gaccd {
namespace {

// Beside the save: until the wish is heard, and until the ranks have left.
constexpr double kTimeLimitReserveS = 5;
// What of it is kept when a disk does not answer.
constexpr double kLeaveReserveS = 2;
// The next update may take so many times as long as this one.
constexpr double kPaceReserve = 1.5;

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
  if (news.time_up > 0) Add("the job's time limit", &reason);
  if (news.stop_now > 0) Add("a second request", &reason);
  if (reason.empty() && news.save > 0) Add("a save was requested", &reason);
  return reason;
}

constexpr const char* kOff = "checkpoints are off (--save-every-seconds)";
constexpr const char* kNoTime = "there was no time";

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

}  // namespace

Status StopDecision::ToStatus(std::string_view where, bool saved) const {
  return {kind, StrCat("stopped by ", reason, " ", where, saved ? ", saved" : ", not saved",
                       saved || unsaved.empty() ? "" : ": ", saved ? "" : unsaved)};
}

StopDecision DecideAtBoundary(const StopNews& news, bool checkpoints, int ranks) {
  StopDecision decision = Undecided(news, ranks);
  if (decision.stops()) return decision;
  if (WantsStop(news)) {
    const bool fits = checkpoints && news.save_misfit == 0;
    decision.action = fits ? StopAction::kSaveStop : StopAction::kLeave;
    if (!fits) decision.unsaved = checkpoints ? kNoTime : kOff;
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
    decision.unsaved = checkpoints ? kNoTime : kOff;
  } else if (news.rest_misfit > 0) {
    decision.action = news.window_misfit > 0 ? StopAction::kSaveBeforeStop : StopAction::kSaveStop;
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
      files_(comm.rank() == 0 ? options.run_dir : std::string(), {.warn = options.warn}),
      save_s_(options.save_guess.count()),
      updates_(options.ask_every.count()),
      evaluation_(options.ask_every.count()) {}

StopNews StopAgreement::Mine(const Ahead& ahead) {
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

  const TimeLeft left =
      FindTimeLeft(options_.job_end, Clock::now(), since_term, options_.term_budget);
  const auto misfit = [&left](double after_s, double save_s) {
    TimeLeft then = left;
    if (then.job) *then.job -= Seconds(after_s);
    if (then.grace) *then.grace -= Seconds(after_s);
    return SaveFits(then, Seconds(save_s)) ? 0.0 : 1.0;
  };
  news.save_misfit = misfit(ahead.save_s, save_s_);
  news.rest_misfit = misfit(ahead.rest_s, save_s_);
  news.window_misfit = misfit(ahead.save_s, save_s_ * window_ratio_);
  // Without checkpoints nothing is won by leaving early.
  if (options_.checkpoints && left.job) {
    const double needed =
        NeededForSave(Seconds(save_s_)).count() + kTimeLimitReserveS + kPaceReserve * ahead.next_s;
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
  GACCD_ASSIGN_OR_RETURN(const StopNews news, Exchange(Mine({})));
  StopDecision decision = DecideAtBoundary(news, false, comm_.size());
  if (!decision.stops()) return Status::Ok();
  decision.unsaved.clear();  // there is nothing to save
  Leave(decision.kind);
  const Status status = decision.ToStatus(stage, false);
  if (news.stop_file == 0) return status;
  return {status.kind(), StrCat(status.message(), "; remove ", options_.run_dir, "/STOP to train")};
}

// A host that runs ahead tells while its device is at the beginning of the update before, and
// decides when one more is on its way, which is waited for.
void StopAgreement::Tell(std::span<double> news, std::int64_t micro_steps, std::int64_t underway) {
  const double since_s = SecondsSince(phase_began_);
  const auto whole = static_cast<double>(micro_steps);
  const double update_s = std::max(since_s * whole / (whole - static_cast<double>(done_before_)),
                                   heard_.pace_s * whole);
  const double ahead_s = update_s * static_cast<double>(2 * underway + 1) - since_s;
  Encode(Mine({.save_s = ahead_s, .rest_s = ahead_s, .next_s = ahead_s + update_s}), news);
}

// Wishes stay until they are fulfilled: one that came between micro-steps is not in the news of the
// update, which were told before.
void StopAgreement::Take(const StopNews& news) {
  heard_ = WantsAnything(heard_) ? Merge(heard_, news) : news;
  if (heard_.save > 0 && !options_.checkpoints) {
    if (!warned_ && comm_.rank() == 0 && options_.warn) {
      options_.warn(
          "a save was requested, but this run keeps no checkpoints: --save-every-seconds");
    }
    warned_ = true;
    Saved();
  }
}

void StopAgreement::Hear(std::span<const double> summed, double update_s,
                         std::int64_t micro_steps) {
  if (micro_steps > 0) pace_s_ = update_s / static_cast<double>(micro_steps);
  const double known = heard_.pace_s;
  Take(DecodeStopNews(summed));
  if (heard_.pace_s <= 0) heard_.pace_s = known;
  updates_.Asked(heard_.pace_s);
}

StopDecision StopAgreement::AtBoundary() const {
  return DecideAtBoundary(heard_, options_.checkpoints, comm_.size());
}

Result<double> StopAgreement::Ask(std::int64_t done, std::int64_t steps) {
  const double pace_s = SecondsSince(phase_began_) / static_cast<double>(done - done_before_);
  const double rest_s = pace_s * static_cast<double>(steps - done);
  StopNews mine = Mine({.rest_s = rest_s, .next_s = rest_s});
  mine.pace_s = comm_.rank() == 0 ? pace_s : 0;
  GACCD_ASSIGN_OR_RETURN(const StopNews news, Exchange(mine));
  if (also_) GACCD_RETURN_IF_ERROR(also_());
  const double of_updates = heard_.pace_s;
  Take(news);
  heard_.pace_s = of_updates;
  return news.pace_s;
}

Result<StopDecision> StopAgreement::BetweenMicroSteps(std::int64_t done, std::int64_t micro_steps) {
  if (done >= micro_steps || !updates_.Due()) return StopDecision{};
  GACCD_ASSIGN_OR_RETURN(heard_.pace_s, Ask(done, micro_steps));
  updates_.Asked(heard_.pace_s);
  return DecideInside(heard_, options_.checkpoints, comm_.size());
}

void StopAgreement::BeginEvaluation() {
  phase_began_ = Clock::now();
  done_before_ = 0;
  evaluation_ = AskClock(options_.ask_every.count());
}

Result<StopDecision> StopAgreement::BetweenBatches(std::int64_t done, std::int64_t batches) {
  if (done >= batches || !evaluation_.Due()) return StopDecision{};
  GACCD_ASSIGN_OR_RETURN(const double pace_s, Ask(done, batches));
  evaluation_.Asked(pace_s);
  // No update is begun: a save is like any other.
  heard_.window_misfit = heard_.save_misfit;
  return DecideInside(heard_, options_.checkpoints, comm_.size());
}

void StopAgreement::Saved() {
  heard_.save = 0;
  if (options_.signals != nullptr) options_.signals->Saved();
  files_.Saved();
}

bool StopAgreement::out_of_time() const {
  std::optional<TimeLeft::Seconds> since_term;
  if (options_.signals != nullptr) since_term = options_.signals->since_term();
  const auto left =
      FindTimeLeft(options_.job_end, Clock::now(), since_term, options_.term_budget).least();
  return left && left->count() < kLeaveReserveS;
}

void StopAgreement::Leave(ErrorKind kind) {
  if (leaving_) return;
  const auto rank = static_cast<std::size_t>(comm_.rank());
  leaving_.emplace(options_.leave_bound, static_cast<int>(kind),
                   StrCat("gaccd: rank ", comm_.rank(), " on ", comm_.topology().hosts[rank],
                          " received a request to exit and did not finish within ",
                          options_.leave_bound.count(), " ms: it exits now"));
}

}  // namespace gaccd
