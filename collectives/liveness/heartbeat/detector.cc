#include "collectives/liveness/heartbeat/detector.h"

#include <algorithm>

namespace gaccd::heartbeat {
namespace {

constexpr int kSlowUpdates = 10;     // median updates without progress after which a rank is stuck
constexpr int kMaxLimits = 3;        // maximum factor on the limit on an overloaded machine
constexpr int kTicksThatAreOwn = 3;  // a tick that is later than this many ticks is our own delay

template <typename T>
T Median(std::vector<T> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// In other phases a rank may wait for a disk, or for the first batch of an evaluation.
bool MustMove(const Progress& progress) {
  return progress.phase == Phase::kCompute ||
         (progress.phase == Phase::kEvaluate && progress.micro_step > 0);
}

}  // namespace

Detector::Detector(std::vector<int> ranks, const DetectorOptions& options, Time now)
    : options_(options), last_tick_(now) {
  for (const int rank : ranks) {
    Peer peer;
    peer.rank = rank;
    peer.heard = now;
    peer.progressed = now;
    peers_.push_back(peer);
  }
}

Detector::Peer* Detector::Find(int rank) {
  const auto found = std::find_if(peers_.begin(), peers_.end(),
                                  [rank](const Peer& peer) { return peer.rank == rank; });
  return found == peers_.end() ? nullptr : &*found;
}

void Detector::OnBeat(int rank, const Progress& progress, Time now) {
  Peer* const peer = Find(rank);
  if (peer == nullptr) return;
  peer->heard = now;
  peer->stalled_then = stalled_;
  const Progress& last = peer->progress;
  if (progress.phase != last.phase || progress.update != last.update ||
      progress.micro_step != last.micro_step) {
    peer->progressed = now;
    peer->stalled_at_progress = stalled_;
    peer->starved_at_progress_ms = progress.starved_ms;
  }
  peer->progress = progress;
}

void Detector::OnDisconnect(int rank) {
  if (Peer* const peer = Find(rank); peer != nullptr) peer->ended = true;
}

void Detector::OnGoodbye(int rank) {
  if (Peer* const peer = Find(rank); peer != nullptr) peer->left = true;
}

Detector::Duration Detector::Silence(const Peer& peer, Time now) const {
  return now - peer.heard - (stalled_ - peer.stalled_then);
}

std::optional<LostRank> Detector::Tick(Time now) {
  const Duration gap = now - last_tick_;
  if (gap > kTicksThatAreOwn * options_.tick) stalled_ += gap - options_.tick;
  last_tick_ = now;
  if (auto lost = FindEnded(now)) return lost;
  if (auto lost = FindSilent(now)) return lost;
  return FindStuck(now);
}

LostRank Detector::Lost(const Peer& peer, Absence absence, Time now) const {
  const Duration silence = absence == Absence::kStalled ? now - peer.progressed : now - peer.heard;
  return {peer.rank, absence, std::chrono::duration_cast<std::chrono::milliseconds>(silence),
          peer.progress};
}

std::optional<LostRank> Detector::FindEnded(Time now) const {
  for (const Peer& peer : peers_) {
    if (peer.ended && !peer.left) return Lost(peer, Absence::kEnded, now);
  }
  return std::nullopt;
}

// The median over the other ranks, so that a rank does not extend its own limit.
Detector::Duration Detector::Lateness(const Peer& peer, Time now) const {
  std::vector<Duration> others;
  for (const Peer& other : peers_) {
    if (&other != &peer && !other.left) others.push_back(Silence(other, now));
  }
  if (others.empty()) return Duration{0};
  return std::min<Duration>(Median(std::move(others)), (kMaxLimits - 1) * options_.silent_after);
}

std::optional<LostRank> Detector::FindSilent(Time now) const {
  const Peer* silent = nullptr;
  for (const Peer& peer : peers_) {
    if (peer.left || Silence(peer, now) <= options_.silent_after) continue;
    if (Silence(peer, now) <= options_.silent_after + Lateness(peer, now)) continue;
    if (silent == nullptr || peer.heard < silent->heard)
      silent = &peer;  // the one silent for the longest time
  }
  if (silent == nullptr) return std::nullopt;
  return Lost(*silent, Absence::kSilent, now);
}

std::optional<LostRank> Detector::FindStuck(Time now) const {
  std::vector<std::uint32_t> medians_ms;
  std::uint64_t waiting_for = 0;  // the update in whose reduction a rank waits
  bool waits = false;
  for (const Peer& peer : peers_) {
    if (peer.left) continue;
    // The next stage of its pipeline cannot progress either.
    if (peer.progress.phase == Phase::kLoad) return std::nullopt;
    medians_ms.push_back(peer.progress.median_update_ms);
    if (peer.progress.phase != Phase::kReduce) continue;
    waiting_for = std::max(waiting_for, peer.progress.update);
    waits = true;
  }
  if (!waits) return std::nullopt;
  const std::uint32_t update_ms = Median(medians_ms);
  if (update_ms == 0) return std::nullopt;  // the time of an update is not known yet
  const Duration limit = std::max<Duration>(options_.silent_after,
                                            kSlowUpdates * std::chrono::milliseconds(update_ms));
  for (const Peer& peer : peers_) {
    const bool behind = MustMove(peer.progress) && peer.progress.update <= waiting_for;
    // Without a core it could not progress: that is not a hang.
    const std::chrono::milliseconds starved(peer.progress.starved_ms - peer.starved_at_progress_ms);
    const Duration still = now - peer.progressed - (stalled_ - peer.stalled_at_progress) - starved;
    // A rank without recent messages will be reported as silent, which is more informative.
    const bool alive = Silence(peer, now) < options_.silent_after / 2;
    if (!peer.left && behind && alive && still > limit) return Lost(peer, Absence::kStalled, now);
  }
  return std::nullopt;
}

}  // namespace gaccd::heartbeat
