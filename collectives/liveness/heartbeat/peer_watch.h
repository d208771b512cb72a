// PeerWatch: what this rank does when the heartbeat finds another one lost. The waits of the
// communicator end with the reason, the main thread leaves in its usual way; if it does not (it
// hangs in a driver, or in the file system), this ends the process for it.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "collectives/base/result.h"
#include "collectives/comm/communicator.h"
#include "collectives/liveness/deadline/exit_timer.h"
#include "collectives/liveness/deadline/interrupt.h"
#include "collectives/liveness/heartbeat/heartbeat.h"

namespace gaccd {

// Used by the main thread.
class PeerWatch {
 public:
  // How long the main thread has to leave by itself: more than the end of a run gives a run folder
  // that does not answer.
  static constexpr std::chrono::milliseconds kLeaveBound{5'000};

  // Collective. `interrupt` is that of comm's CommOptions. silent_after 0: no heartbeat.
  static Result<std::unique_ptr<PeerWatch>> Start(Communicator& comm,
                                                  std::shared_ptr<Interrupt> interrupt,
                                                  std::chrono::seconds silent_after);

  void SetPhase(heartbeat::Phase phase, std::uint64_t update, std::uint32_t micro_step = 0) {
    if (heart_) heart_->SetPhase(phase, update, micro_step);
  }
  // The time of the last update; the median of the last ones says what is slow.
  void UpdateTook(std::chrono::duration<double> time);

  // For how many seconds this process did not run since the last call; 0 without a heartbeat.
  double TakeStopped();

  // Every rank, after the last collective of a run that ended well.
  void Goodbye() {
    if (heart_) heart_->Goodbye();
  }

  // Whether there is a heartbeat, which may find a rank lost.
  [[nodiscard]] bool beats() const { return heart_ != nullptr; }
  [[nodiscard]] std::vector<heartbeat::LostRank> lost() const {
    return heart_ ? heart_->lost() : std::vector<heartbeat::LostRank>();
  }
  [[nodiscard]] bool all_lost_known() const { return heart_ && heart_->all_lost_known(); }

 private:
  PeerWatch() = default;

  std::vector<double> last_steps_;  // seconds, a ring
  std::size_t next_step_ = 0;
  std::chrono::nanoseconds stopped_taken_{0};
  std::unique_ptr<ExitTimer> timer_;  // written by the heartbeat's thread, which ends before it
  std::unique_ptr<Heartbeat> heart_;
};

}  // namespace gaccd
