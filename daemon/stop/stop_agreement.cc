#include "daemon/stop/stop_agreement.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "collectives/base/strings.h"

namespace gaccd {
namespace {

// Besides the save: time until the request has reached all ranks, and until they have exited.
constexpr double kTimeLimitReserveS = 5;
// The part of it that is kept if a disk does not respond.
constexpr double kExitReserveS = 2;
// Factor by which the rest of an update, and the next update, may exceed their expected time.
constexpr double kPaceReserve = 1.5;

bool RequestsStop(const StopWords& words) {
  return words.stop > 0 || words.stop_file > 0 || words.time_up > 0;
}

bool HasRequest(const StopWords& words) {
  return RequestsStop(words) || words.stop_now > 0 || words.save > 0;
}

void Add(std::string_view what, std::string* list) {
  *list += StrCat(list->empty() ? "" : ", ", what);
}

std::string DescribeReason(const StopWords& words, int ranks) {
  std::string reason;
  for (std::size_t i = 0; i < kStopSignals.size(); ++i) {
    if (words.signals[i] <= 0) continue;
    Add(StrCat(SignalName(kStopSignals[i]), " (", std::llround(words.signals[i]), " of ",
               Counted(ranks, "rank"), ")"),
        &reason);
  }
  if (words.stop_file > 0) Add("the file STOP", &reason);
  if (words.time_up > 0) Add("the job's time limit", &reason);
  if (words.stop_now > 0) Add("a second request", &reason);
  if (reason.empty() && words.save > 0) Add("a save was requested", &reason);
  return reason;
}

constexpr const char* kOff = "checkpoints are off (--save-every-seconds)";
constexpr const char* kNoTime = "there was no time";

// The part of a decision that does not depend on the position.
StopDecision Undecided(const StopWords& words, int ranks) {
  StopDecision decision{.reason = DescribeReason(words, ranks)};
  if (words.stop_now > 0) {
    decision.action = StopAction::kExit;
    if (words.interrupted > 0) decision.kind = ErrorKind::kInterrupted;
  }
  if (words.stop_file > 0) decision.kind = ErrorKind::kNoRequeue;
  return decision;
}

}  // namespace

Status StopDecision::ToStatus(std::string_view where, bool saved) const {
  return {kind, StrCat("stopped by ", reason, " ", where, saved ? ", saved" : ", not saved",
                       saved || unsaved.empty() ? "" : ": ", saved ? "" : unsaved)};
}

StopDecision DecideAtBoundary(const StopWords& words, bool checkpoints, int ranks) {
  StopDecision decision = Undecided(words, ranks);
  if (decision.stops()) return decision;
  if (RequestsStop(words)) {
    const bool fits = checkpoints && words.cannot_save == 0;
    decision.action = fits ? StopAction::kSaveStop : StopAction::kExit;
    if (!fits) decision.unsaved = checkpoints ? kNoTime : kOff;
  } else if (words.save > 0 && checkpoints) {
    decision.action = StopAction::kSave;
  }
  return decision;
}

StopDecision DecideInside(const StopWords& words, bool checkpoints, int ranks) {
  StopDecision decision = Undecided(words, ranks);
  if (decision.stops() || !RequestsStop(words)) return decision;
  if (!checkpoints || words.cannot_save > 0) {
    decision.action = StopAction::kExit;
    decision.unsaved = checkpoints ? kNoTime : kOff;
  } else if (words.cannot_save_after_update > 0) {
    decision.action =
        words.cannot_save_in_update > 0 ? StopAction::kSaveBeforeStop : StopAction::kSaveStop;
  }
  return decision;
}

bool ExchangeClock::Due(bool hurry) {
  constexpr double kHurry = 10;
  ++steps_;
  const double every_s = hurry ? every_s_ / kHurry : every_s_;
  if (pace_s_ > 0) return static_cast<double>(steps_) * pace_s_ >= every_s;
  return std::has_single_bit(static_cast<std::uint64_t>(steps_));
}

void ExchangeClock::Exchanged(double pace_s) {
  if (pace_s > 0) {
    pace_s_ = pace_s;
    steps_ = 0;
  }
}

StopAgreement::StopAgreement(Communicator& comm, const StopOptions& options)
    : comm_(comm),
      options_(options),
      files_(comm.rank() == 0 ? options.run_dir : std::string(),
             {.warn = options.warn, .pause = options.poll_every}),
      save_s_(options.save_guess.count()),
      updates_(options.exchange_every.count()),
      evaluation_(options.exchange_every.count()),
      phase_began_(options.now()) {}

TimeLeft StopAgreement::FindTimeLeftNow() const {
  const Clock::time_point now = options_.now();
  std::optional<TimeLeft::Seconds> since_term;
  if (options_.signals != nullptr) {
    if (const auto term = options_.signals->term_time()) since_term = now - *term;
  }
  return FindTimeLeft(options_.job_end, now, since_term, options_.term_budget);
}

StopWords StopAgreement::LocalWords(const StopPoints& ahead) {
  using Seconds = TimeLeft::Seconds;
  StopWords words{.pace_s = comm_.rank() == 0 ? pace_s_ : 0};
  if (const StopSignals* signals = options_.signals) {
    const StopRequest request = signals->request();
    words.save = request == StopRequest::kSave ? 1 : 0;
    words.stop = request == StopRequest::kStop || request == StopRequest::kStopNow ? 1 : 0;
    words.stop_now = request == StopRequest::kStopNow ? 1 : 0;
    words.interrupted = words.stop_now > 0 && signals->stop_signal() == SIGINT ? 1 : 0;
    for (std::size_t i = 0; i < kStopSignals.size(); ++i) {
      words.signals[i] = signals->was_received(kStopSignals[i]) ? 1 : 0;
    }
  }
  const StopRequest file = files_.request();
  words.stop_file = file == StopRequest::kStop ? 1 : 0;
  if (file == StopRequest::kSave) words.save = 1;

  const TimeLeft left = FindTimeLeftNow();
  const auto too_late = [&left](double after_s, double save_s) {
    TimeLeft then = left;
    if (then.job) *then.job -= Seconds(after_s);
    if (then.grace) *then.grace -= Seconds(after_s);
    return SaveFits(then, Seconds(save_s)) ? 0.0 : 1.0;
  };
  words.cannot_save = too_late(ahead.save_s, measured_save_s_);
  words.cannot_save_after_update = too_late(ahead.rest_s, save_s_);
  words.cannot_save_in_update = too_late(ahead.save_s, save_s_ * window_ratio_);
  // Without checkpoints an early exit gains nothing.
  if (options_.checkpoints && left.job) {
    const double needed =
        NeededForSave(Seconds(save_s_)).count() + kTimeLimitReserveS + kPaceReserve * ahead.next_s;
    words.time_up = left.job->count() < needed ? 1 : 0;
  }
  return words;
}

Result<StopWords> StopAgreement::Exchange(const StopWords& mine) {
  std::array<double, kStopWordCount> words{};
  Encode(mine, words);
  const MutableBuffer view = View(std::span<double>(words));
  GACCD_RETURN_IF_ERROR(comm_.AllReduceSum(view, view));
  return DecodeStopWords(words);
}

Status StopAgreement::AfterStage(std::string_view stage) {
  GACCD_ASSIGN_OR_RETURN(const StopWords words, Exchange(LocalWords({})));
  StopDecision decision = DecideAtBoundary(words, false, comm_.size());
  if (!decision.stops()) return Status::Ok();
  decision.unsaved.clear();  // there is nothing to save
  LimitExit(decision.kind);
  const Status status = decision.ToStatus(stage, false);
  if (words.stop_file == 0) return status;
  return {status.kind(), StrCat(status.message(), "; remove ", options_.run_dir, "/STOP to train")};
}

// A host that runs ahead sends its words while its device is at the beginning of the previous
// update, and decides when one more update is in flight, for which it then waits.
void StopAgreement::Pack(std::span<double> words, std::int64_t micro_steps,
                         std::int64_t in_flight) {
  const double since_s = Since(phase_began_);
  packed_ = in_flight == 0 ? std::optional(options_.now()) : std::nullopt;
  const auto whole = static_cast<double>(micro_steps);
  const double update_s = std::max(since_s * whole / (whole - static_cast<double>(done_before_)),
                                   agreed_.pace_s * whole);
  const double ahead_s =
      std::max(update_s * static_cast<double>(2 * in_flight + 1) - since_s, tail_s_);
  Encode(LocalWords({.save_s = ahead_s, .rest_s = ahead_s, .next_s = ahead_s + update_s}), words);
}

// Requests are kept until they are fulfilled: one that came between micro-steps is not in the words
// of the update, which were packed before.
void StopAgreement::Apply(const StopWords& words) {
  agreed_ = HasRequest(agreed_) ? Merge(agreed_, words) : words;
  if (agreed_.save > 0 && !options_.checkpoints) {
    if (!warned_ && comm_.rank() == 0 && options_.warn) {
      options_.warn(
          "a save was requested, but this run keeps no checkpoints: --save-every-seconds");
    }
    warned_ = true;
    Saved();
  }
}

void StopAgreement::Unpack(std::span<const double> summed, double update_s,
                           std::int64_t micro_steps) {
  tail_s_ = packed_ ? Since(*packed_) : 0;
  if (micro_steps > 0) pace_s_ = update_s / static_cast<double>(micro_steps);
  const double known = agreed_.pace_s;
  Apply(DecodeStopWords(summed));
  if (agreed_.pace_s <= 0) agreed_.pace_s = known;
  updates_.Exchanged(agreed_.pace_s);
}

StopDecision StopAgreement::AtBoundary() const {
  return DecideAtBoundary(agreed_, options_.checkpoints, comm_.size());
}

Result<double> StopAgreement::ExchangeInside(std::int64_t done, std::int64_t steps) {
  const double pace_s = Since(phase_began_) / static_cast<double>(done - done_before_);
  const double rest_s = pace_s * static_cast<double>(steps - done) + tail_s_;
  // The rest may be slower than what was done. If it then takes too long, a later exchange still
  // has time for a save.
  // The job's limit is a reason to stop only if a save would be too late after the next exchange.
  const double larger_save_s = save_s_ * std::max(window_ratio_ - 1, 0.0);
  StopWords mine = LocalWords({.rest_s = kPaceReserve * rest_s,
                               .next_s = pace_s + options_.exchange_every.count() + larger_save_s});
  mine.pace_s = comm_.rank() == 0 ? pace_s : 0;
  GACCD_ASSIGN_OR_RETURN(const StopWords words, Exchange(mine));
  if (periodic_work_) GACCD_RETURN_IF_ERROR(periodic_work_());
  const double of_updates = agreed_.pace_s;
  Apply(words);
  agreed_.pace_s = of_updates;
  return words.pace_s;
}

Result<StopDecision> StopAgreement::BetweenMicroSteps(std::int64_t done, std::int64_t micro_steps) {
  if (done >= micro_steps || !updates_.Due(RequestsStop(agreed_))) return StopDecision{};
  GACCD_ASSIGN_OR_RETURN(agreed_.pace_s, ExchangeInside(done, micro_steps));
  updates_.Exchanged(agreed_.pace_s);
  return DecideInside(agreed_, options_.checkpoints, comm_.size());
}

void StopAgreement::BeginEvaluation() {
  phase_began_ = options_.now();
  done_before_ = 0;
  tail_s_ = 0;
  evaluation_ = ExchangeClock(options_.exchange_every.count());
}

Result<StopDecision> StopAgreement::BetweenBatches(std::int64_t done, std::int64_t batches) {
  if (done >= batches || !evaluation_.Due(RequestsStop(agreed_))) return StopDecision{};
  GACCD_ASSIGN_OR_RETURN(const double pace_s, ExchangeInside(done, batches));
  evaluation_.Exchanged(pace_s);
  return DecideInside(agreed_, options_.checkpoints, comm_.size());
}

void StopAgreement::Saved() {
  agreed_.save = 0;
  if (options_.signals != nullptr) options_.signals->Saved();
  files_.Saved();
}

bool StopAgreement::out_of_time() const {
  const auto left = FindTimeLeftNow().least();
  return left && left->count() < kExitReserveS;
}

void StopAgreement::LimitExit(ErrorKind kind) {
  if (exit_limit_) return;
  const auto rank = static_cast<std::size_t>(comm_.rank());
  exit_limit_.emplace(options_.exit_bound, static_cast<int>(kind),
                      StrCat("gaccd: rank ", comm_.rank(), " on ", comm_.topology().hosts[rank],
                             " received a request to exit and did not finish within ",
                             options_.exit_bound.count(), " ms: it exits now"));
}

}  // namespace gaccd
