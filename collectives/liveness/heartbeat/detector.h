// Detector: decides from received messages which ranks are lost. Pure: time is an argument.
//
//   ended     the connection was closed by the system: the process is gone. Detected at once.
//   silent    no message for `silent_after`: stopped or disconnected.
//   stuck     recent messages, but at the same micro-step, or batch of an evaluation, for
//             max(silent_after, 10 median updates), while another rank already waits for it in a
//             collective of that update. Phases that may wait for a disk are never stuck: loading,
//             saving, the first batch of an evaluation; hangs there are found by the deadline of
//             the collective. While a rank loads, no rank is stuck: other stages of its pipeline
//             wait for its messages.
//
// An overloaded machine must not be reported as dead. Time in which the detector itself did not run
// does not count as silence of others. If most of the others are late too, the limit grows by the
// median of their lateness, up to three times: if a switch disconnects more than half of the ranks,
// the first is reported after three limits. Without this, a machine that is overloaded for some
// seconds would end the run. Time in which a rank was ready to run but had no core does not count
// as stuck. Not thread-safe.
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
  Progress last;  // its last known state

  bool operator==(const LostRank&) const = default;
};

struct DetectorOptions {
  std::chrono::milliseconds silent_after{5'000};
  std::chrono::milliseconds tick{100};  // how often Tick() should be called
};

class Detector {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // Watches `ranks`, all of which count as heard at `now`.
  Detector(std::vector<int> ranks, const DetectorOptions& options, Time now);

  void OnBeat(int rank, const Progress& progress, Time now);
  // The connection was closed. Expected after OnGoodbye().
  void OnDisconnect(int rank);
  // The rank said goodbye: no more messages are expected.
  void OnGoodbye(int rank);

  // Call regularly. Returns the first lost rank: ended before silent before stuck.
  [[nodiscard]] std::optional<LostRank> Tick(Time now);

 private:
  using Duration = std::chrono::steady_clock::duration;
  struct Peer {
    int rank = 0;
    Time heard;
    Duration stalled_then{0};  // value of stalled_ at that time
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
  Duration stalled_{0};  // total time in which the detector itself did not run
};

}  // namespace gaccd::heartbeat
