// Detector: decides from the messages it received which ranks are lost. Pure: time is an argument.
//
//   ended     the connection was closed by the system: the process is gone. At once.
//   silent    nothing was heard for `silent_after`: stopped or cut off.
//   stuck     heard lately, but at the same micro-step, or batch of an evaluation, for
//             max(silent_after, 10 median steps), while another rank already waits for it in a
//             collective of that update. What may wait for a disk is never stuck: loading, saving,
//             the first batch of an evaluation; there a hang is found by the collective's deadline.
//             While a rank loads nobody is: other stages of its pipeline wait for what it sends.
//
// An overloaded machine must not look like a dead one. So the detector first checks itself: time in
// which it did not run does not count as silence of others. When most of the others are late too,
// the limit grows by the median of their lateness, up to three times: where a switch takes more
// than half of the ranks away, the first is named after three limits, as without that a machine
// that is overloaded for some seconds ends the run. And time in which a rank was ready to run but
// had no core does not count as being stuck. Not thread-safe.
#pragma once

#include <chrono>
#include <optional>
#include <vector>

#include "collectives/liveness/heartbeat/frame.h"

namespace gaccd::heartbeat {

struct LostRank {
  int rank = 0;
  Absence absence = Absence::kEnded;  // kEnded, kSilent or kStalled
  std::chrono::milliseconds silence{0};
  Progress last;  // what it was doing

  bool operator==(const LostRank&) const = default;
};

struct DetectorOptions {
  std::chrono::milliseconds silent_after{5'000};
  std::chrono::milliseconds tick{100};  // how often Tick() is meant to be called
};

class Detector {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // Watches `ranks`, all of which were heard at `now`.
  Detector(std::vector<int> ranks, const DetectorOptions& options, Time now);

  void Heard(int rank, const Progress& progress, Time now);
  // The connection was closed. After OnGoodbye() that is expected.
  void Ended(int rank);
  // The rank said goodbye: nothing more is expected of it.
  void OnGoodbye(int rank);

  // To be called all the time; the first lost rank, the dead before the silent before the stuck.
  [[nodiscard]] std::optional<LostRank> Tick(Time now);

 private:
  using Duration = std::chrono::steady_clock::duration;
  struct Peer {
    int rank = 0;
    Time heard;
    Duration stalled_then{0};  // stalled_ at that time
    Progress progress;
    Time progressed;
    Duration stalled_at_progress{0};
    std::uint32_t starved_at_progress_ms = 0;
    bool ended = false;
    bool left = false;
  };

  Peer* Find(int rank);
  [[nodiscard]] Duration Silence(const Peer& peer, Time now) const;
  [[nodiscard]] Duration Lateness(const Peer& peer, Time now) const;
  [[nodiscard]] std::optional<LostRank> FindEnded(Time now) const;
  [[nodiscard]] std::optional<LostRank> FindSilent(Time now) const;
  [[nodiscard]] std::optional<LostRank> FindStuck(Time now) const;
  [[nodiscard]] LostRank Lost(const Peer& peer, Absence absence, Time now) const;

  DetectorOptions options_;
  std::vector<Peer> peers_;
  Time last_tick_;
  Duration stalled_{0};  // how long the detector itself did not run, in total
};

}  // namespace gaccd::heartbeat
