#include "daemon/train/control_words.h"

#include <chrono>
#include <string>

#include "collectives/base/strings.h"
#include "daemon/telemetry/log.h"

namespace gaccd {
namespace {

// "slow rank: rank 3 on n2 costs 43 % of the time: the others waited for it for 12.5 of the last
// 29.1 s (100 updates), most of it in compute".
std::string Describe(const TimeLost& lost, const Straggler& rank, const std::string& host) {
  return StrCat(
      "slow rank: rank ", rank.rank, " on ", host,
      Format(" costs %.0f %% of the time: the others waited for it for %.1f of the last %.1f s (",
             100 * lost.lost_s / lost.total_s, lost.lost_s, lost.total_s),
      lost.updates, " updates), most of it ",
      lost.phase == "stopped" ? "stopped, or without a core to run on" : StrCat("in ", lost.phase));
}

// Relative to those of other ranks.
std::vector<double> PlannedTimes(const Plan& plan) {
  std::vector<double> times;
  for (std::int64_t rank = 0; rank < plan.world(); ++rank) {
    times.push_back(static_cast<double>(plan.Load(rank)) / plan.Speed(rank));
  }
  return times;
}

}  // namespace

void ControlWords::Pack(StopAgreement* stops, std::int64_t micro_steps,
                        std::int64_t updates_in_flight) {
  if (stops != nullptr) stops->Pack(words_, micro_steps, updates_in_flight);
  times_.Pack(std::span(words_).subspan(kStopWordCount));
  sent_.push_back(timed_);
}

void ControlWords::Unpack(const UpdateInFlight& done, const UpdateResult& result,
                          const BatchFeed* feed, StopAgreement* stops, PeerWatch* peers,
                          StepRecord* record) {
  if (stops != nullptr) {
    stops->Unpack(result.control_words, result.dur_s, done.micro_steps - done.restored);
  }
  if (peers != nullptr) peers->RecordUpdateTime(std::chrono::duration<double>(result.dur_s));
  busy_update_ = sent_.front();
  sent_.pop_front();
  const bool timed = feed != nullptr && measures() && busy_update_.samples > 0;
  const auto straggler =
      times_.Unpack(result.control_words.subspan(kStopWordCount),
                    timed ? PlannedTimes(feed->PlanFor(busy_update_)) : std::vector<double>());
  timed_ = done.update;
  times_.SetTimes({.data_s = result.data_s,
                   .compute_s = result.fwd_bwd_s,
                   .stopped_s = peers == nullptr ? 0 : peers->StoppedSinceLastCall(),
                   .dur_s = result.dur_s});
  if (!straggler) return;
  const std::string& host = comm_.topology().hosts[static_cast<std::size_t>(straggler->rank)];
  record->wait_s = straggler->wait_s;
  record->straggler = SlowRank{.rank = straggler->rank,
                               .host = host,
                               .phase = std::string(straggler->phase),
                               .ratio = straggler->ratio};
  if (straggler->slow && comm_.rank() == 0) {
    LogWarning(Describe(*straggler->slow, *straggler, host));
  }
}

}  // namespace gaccd
