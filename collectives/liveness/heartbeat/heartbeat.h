// Heartbeat: a channel separate from MPI and NCCL on which the ranks report that they
// live. Its own thread and its own TCP sockets: a rank that hangs in a collective still beats, and
// a rank that does not beat is not merely slow in a collective.
//
//   rank 1 ..... n-1  --beat every 250 ms: what I do-->  rank 0 (the hub)  --beats, losses-->  all
//
// The hub decides which ranks are lost (detector.h) and notifies all; the others watch only the
// hub. Port and addresses are the hub's, chosen by the system; they and a secret of 256 bits go out
// over the communicator. Every message is signed with a key of its connection (frame.h), so that
// nobody else on the cluster can speak for a rank or end a run.
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

#include "collectives/base/process_memory.h"
#include "collectives/base/result.h"
#include "collectives/comm/communicator.h"
#include "collectives/liveness/heartbeat/detector.h"

namespace gaccd {

struct HeartbeatOptions {
  std::chrono::milliseconds interval{250};
  std::chrono::milliseconds silent_after{5'000};  // stopped, cut off, or stuck for so long
  std::chrono::milliseconds join_bound{20'000};   // for all ranks to find the hub
};

// What both loops share with the main thread.
class HeartbeatShared {
 public:
  void SetPhase(heartbeat::Phase phase, std::uint64_t update, std::uint32_t micro_step) {
    place_.store(static_cast<std::uint64_t>(phase) << 32 | micro_step, std::memory_order_relaxed);
    update_.store(update, std::memory_order_relaxed);
  }
  void SetMedianStep(std::chrono::milliseconds step) {
    median_step_ms_.store(static_cast<std::uint32_t>(step.count()), std::memory_order_relaxed);
  }
  [[nodiscard]] heartbeat::Progress Read();  // by the thread

  // By the thread, in every pass of its loop: between two of them lie kTick at most, unless the
  // process does not run. Stopped(): for how long it did not, in total.
  void Ran(std::chrono::steady_clock::time_point now);
  [[nodiscard]] std::chrono::nanoseconds Stopped(std::chrono::steady_clock::time_point now) const;

  void Joined(Status status);
  [[nodiscard]] Status WaitUntilJoined(std::chrono::milliseconds bound);
  // false: it is known already, or it came later than heartbeat::kTogether after the first: that
  // rank learned of that one may have left because of it.
  bool AddLost(const heartbeat::LostRank& lost);
  [[nodiscard]] std::vector<heartbeat::LostRank> lost() const;
  [[nodiscard]] bool all_lost_known() const;

  std::atomic<bool> stop{false};     // the thread should end
  std::atomic<bool> leaving{false};  // the thread should say goodbye
  std::atomic<bool> said_goodbye{false};
  int main_thread = 0;  // its number, for /proc

 private:
  ProcessMemory memory_;
  std::atomic<std::uint64_t> place_{0};
  std::atomic<std::uint64_t> update_{0};
  std::atomic<std::uint32_t> median_step_ms_{0};
  std::atomic<std::int64_t> last_ran_ns_{0};  // of the steady clock; 0: never
  std::atomic<std::int64_t> stopped_ns_{0};
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Status> joined_;
  std::vector<heartbeat::LostRank> lost_;
  std::chrono::steady_clock::time_point last_moment_;  // for more of them
};

class Heartbeat {
 public:
  // Called once, on the heartbeat's thread, for the first rank that is lost; also on the lost rank
  // itself, if it can still hear. It should end the process within the bound, whatever the main
  // thread does.
  using OnLost = std::function<void(const heartbeat::LostRank&)>;

  // Collective. A world of one has no thread. kUnavailable on every rank when one cannot reach the
  // hub in time, naming it; kConfig where that has no address for other nodes.
  static Result<std::unique_ptr<Heartbeat>> Start(Communicator& comm,
                                                  const HeartbeatOptions& options, OnLost on_lost);
  // Without Goodbye() before, the others take it for the end of this process.
  ~Heartbeat();
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

  // What the main thread does now. Wait-free.
  void SetPhase(heartbeat::Phase phase, std::uint64_t update, std::uint32_t micro_step = 0) {
    shared_.SetPhase(phase, update, micro_step);
  }
  // The median time of this rank's last updates: how long is "stuck".
  void SetMedianStep(std::chrono::milliseconds step) { shared_.SetMedianStep(step); }

  // How long this process was stopped, or had no core, since Start(): what is shorter than a tick
  // or so is not seen. Thread-safe.
  [[nodiscard]] std::chrono::nanoseconds Stopped() const {
    return shared_.Stopped(std::chrono::steady_clock::now());
  }

  // This rank ends as it should: its silence is no loss. Waits until the message is on its way, at
  // most a second. To be called by every rank after the last collective.
  void Goodbye();

  // All that were lost within heartbeat::kTogether, the first one first. More may be added until
  // all_lost_known().
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
