// Heartbeat: a channel separate from MPI and NCCL on which the ranks report that they are alive. It
// has its own thread and TCP sockets: a rank that hangs in a collective still sends heartbeats, and
// a rank without heartbeats is not just slow in a collective.
//
//   rank 1 ..... n-1  --beat every 250 ms: progress-->  rank 0 (the hub)  --beats, losses-->  all
//
// The hub decides which ranks are lost (detector.h) and notifies all; the others watch only the
// hub. Port and addresses of the hub are chosen by the system and sent over the communicator
// together with a secret of 256 bits. Every message is signed with a key of its connection
// (frame.h), so that no other process on the cluster can impersonate a rank or end a run.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "collectives/base/memory.h"
#include "collectives/base/result.h"
#include "collectives/comm/communicator.h"
#include "collectives/liveness/heartbeat/detector.h"

namespace gaccd {

struct HeartbeatOptions {
  std::chrono::milliseconds interval{250};
  std::chrono::milliseconds silent_after{5'000};  // stopped, disconnected, or stuck for this time
  std::chrono::milliseconds join_bound{20'000};   // for all ranks to connect to the hub
};

// State shared by the loops and the main thread.
class HeartbeatShared {
 public:
  void SetPhase(heartbeat::Phase phase, std::uint64_t update, std::uint32_t micro_step) {
    place_.store(static_cast<std::uint64_t>(phase) << 32 | micro_step, std::memory_order_relaxed);
    update_.store(update, std::memory_order_relaxed);
  }
  void SetMedianUpdate(std::chrono::milliseconds update) {
    median_update_ms_.store(static_cast<std::uint32_t>(update.count()), std::memory_order_relaxed);
  }
  [[nodiscard]] heartbeat::Progress Read();  // called by the heartbeat's thread

  // RecordRunning() is called by the heartbeat's thread in every pass of its loop, at least every
  // kTick unless the process does not run. StoppedTime(): the total time in which it did not run.
  void RecordRunning(std::chrono::steady_clock::time_point now);
  [[nodiscard]] std::chrono::nanoseconds StoppedTime(
      std::chrono::steady_clock::time_point now) const;

  void Joined(Status status);
  [[nodiscard]] Status WaitUntilJoined(std::chrono::milliseconds bound);
  // Returns false if it is already known, or was lost more than heartbeat::kConcurrentLoss, or
  // kConcurrentSilence if the first is silent, after the first: it may have exited because of it.
  bool AddLost(const heartbeat::LostRank& lost);
  [[nodiscard]] std::vector<heartbeat::LostRank> lost() const;
  [[nodiscard]] bool all_lost_known() const;

  std::atomic<bool> stop{false};     // requests the thread to end
  std::atomic<bool> leaving{false};  // requests the thread to say goodbye
  std::atomic<bool> said_goodbye{false};
  int main_thread = 0;  // its thread id, for /proc

 private:
  ProcessMemory memory_;
  std::atomic<std::uint64_t> place_{0};
  std::atomic<std::uint64_t> update_{0};
  std::atomic<std::uint32_t> median_update_ms_{0};
  std::atomic<std::int64_t> last_ran_ns_{0};  // steady clock; 0: never
  std::atomic<std::int64_t> stopped_ns_{0};
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Status> joined_;
  std::vector<heartbeat::LostRank> lost_;
  std::chrono::steady_clock::time_point last_moment_;  // until which more losses are added
};

class Heartbeat {
 public:
  // Called once, on the heartbeat's thread, for the first lost rank; also on the lost rank itself,
  // if it still receives messages. Should end the process within the bound, whatever the main
  // thread does.
  using OnLost = std::function<void(const heartbeat::LostRank&)>;

  // Collective. A world of one has no thread. kUnavailable on every rank, with the name of the
  // rank, if one cannot reach the hub in time; kConfig if the hub has no address for other nodes.
  static Result<std::unique_ptr<Heartbeat>> Start(Communicator& comm,
                                                  const HeartbeatOptions& options, OnLost on_lost);
  // Without an earlier Goodbye(), the others treat it as the end of this process.
  ~Heartbeat();
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

  // Sets the state of the main thread. Wait-free.
  void SetPhase(heartbeat::Phase phase, std::uint64_t update, std::uint32_t micro_step = 0) {
    shared_.SetPhase(phase, update, micro_step);
  }
  // Sets the median time of this rank's last updates, which defines "stuck".
  void SetMedianUpdate(std::chrono::milliseconds update) { shared_.SetMedianUpdate(update); }

  // Total time since Start() in which this process was stopped or had no core. Times below about a
  // tick are not detected. Thread-safe.
  [[nodiscard]] std::chrono::nanoseconds StoppedTime() const {
    return shared_.StoppedTime(std::chrono::steady_clock::now());
  }

  // Announces a regular end, so that the silence of this rank is not a loss. Waits up to a second
  // until the message is sent. Every rank must call it after the last collective.
  void Goodbye();

  // All ranks lost within heartbeat::kConcurrentLoss, or kConcurrentSilence if the first is silent,
  // the first one first. More may be added until all_lost_known().
  [[nodiscard]] std::vector<heartbeat::LostRank> lost() const { return shared_.lost(); }
  [[nodiscard]] bool all_lost_known() const { return shared_.all_lost_known(); }

 private:
  Heartbeat() = default;

  HeartbeatShared shared_;
  std::thread thread_;
};

// "rank 3 on n1 has ended (its connection was closed); last seen in compute of update 12,
// micro-step 2".
[[nodiscard]] std::string Describe(const heartbeat::LostRank& lost, const Topology& topology);

}  // namespace gaccd
