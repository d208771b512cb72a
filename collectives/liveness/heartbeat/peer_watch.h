// PeerWatch: reaction of this rank to the loss of another one. Ends the waits of the communicator
// with the reason, so that the main thread exits regularly; if it does not (it hangs in a driver or
// the file system), ends the process.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "collectives/base/result.h"
#include "collectives/comm/communicator.h"
#include "collectives/liveness/deadline/deadline.h"
#include "collectives/liveness/heartbeat/heartbeat.h"

namespace gaccd {

// Used by the main thread.
class PeerWatch {
 public:
  // Time for the main thread to exit by itself. Longer than the end of a run waits for a run folder
  // that does not respond.
  static constexpr std::chrono::milliseconds kExitTimeout{5'000};

  // Collective. interrupt: that of comm's CommOptions. silent_after 0: no heartbeat.
  static Result<std::unique_ptr<PeerWatch>> Start(Communicator& comm,
                                                  std::shared_ptr<Interrupt> interrupt,
                                                  std::chrono::seconds silent_after);

  void SetPhase(heartbeat::Phase phase, std::uint64_t update, std::uint32_t micro_step = 0) {
    if (heartbeat_) heartbeat_->SetPhase(phase, update, micro_step);
  }
  // Sets the duration of the last update; the median of recent ones defines what is slow.
  void RecordUpdateTime(std::chrono::duration<double> time);

  // Seconds in which this process did not run since the last call; 0 without a heartbeat.
  double StoppedSinceLastCall();

  // Every rank calls it after the last collective of a successful run.
  void Goodbye() {
    if (heartbeat_) heartbeat_->Goodbye();
  }

  // Whether there is a heartbeat, which can find ranks lost.
  [[nodiscard]] bool beats() const { return heartbeat_ != nullptr; }
  [[nodiscard]] std::vector<heartbeat::LostRank> lost() const {
    return heartbeat_ ? heartbeat_->lost() : std::vector<heartbeat::LostRank>();
  }
  [[nodiscard]] bool all_lost_known() const { return heartbeat_ && heartbeat_->all_lost_known(); }

 private:
  PeerWatch() = default;

  std::vector<double> last_updates_s_;  // a ring
  std::size_t next_update_ = 0;
  std::chrono::nanoseconds stopped_taken_{0};
  std::unique_ptr<ExitTimer> timer_;  // written by the heartbeat's thread, which ends before it
  std::unique_ptr<Heartbeat> heartbeat_;
};

}  // namespace gaccd
