// Synchronisation of ranks that are threads of one process.
//
// An operation has two barriers. BarrierAndCheck(): every rank publishes its call and waits, with a
// deadline, until all have arrived; then each may read the memory that the others publish.
// Finish(): no rank continues, and no memory may be freed, until all have finished reading. Only
// our own code runs between the two, so Finish() needs no deadline and ignores failures.
//
//   world: all ranks of one RunThreadRanks(); has the mutex and the first failure
//   group: the members of one communicator; a failure in any group fails the whole world
//
// Waiting threads sleep on a futex and never spin: 240 ranks run on two cores. Thread-safe.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collectives/base/dtype.h"
#include "collectives/base/result.h"
#include "collectives/comm/communicator.h"
#include "collectives/liveness/deadline/missing.h"

namespace gaccd {

// The arguments that a rank publishes. Its memory must stay valid until Finish().
struct ThreadCall {
  Operation operation = Operation::kNone;
  ConstBuffer in = {};
  MutableBuffer out = {};
  std::size_t agreed_count = 0;  // elements (kAllocate: bytes); must be equal on all ranks
  std::span<const std::int64_t> counts = {};  // must be equal on all ranks
  int root = 0;                               // must be equal on all ranks
  int color = 0;
  int key = 0;
};

class ThreadGroup;

class ThreadWorld {
 public:
  // hosts, node_of: by rank of the world.
  ThreadWorld(std::vector<std::string> hosts, std::vector<int> node_of)
      : hosts_(std::move(hosts)), node_of_(std::move(node_of)), left_(hosts_.size(), false) {}

  // Records the first failure and wakes all ranks. for_peers: returned by operations from now on;
  // result: returned by RunThreadRanks(). Later failures are ignored.
  void Fail(Status for_peers, Status result);
  // `rank` will enter no more operations; a rank that waits for it fails now.
  void Exit(int rank);
  [[nodiscard]] Status result();
  [[nodiscard]] const std::vector<std::string>& hosts() const { return hosts_; }
  [[nodiscard]] const std::vector<int>& node_of() const { return node_of_; }

 private:
  friend class ThreadGroup;
  struct Failure {
    Status for_peers;
    Status result;
  };
  void FailLocked(Status for_peers, Status result);

  const std::vector<std::string> hosts_;
  const std::vector<int> node_of_;
  std::mutex mutex_;
  std::optional<Failure> failure_;
  std::vector<bool> left_;
  std::vector<ThreadGroup*> groups_;
};

class ThreadGroup {
 public:
  // world_ranks: the members, by rank of this group.
  ThreadGroup(std::shared_ptr<ThreadWorld> world, std::vector<int> world_ranks,
              CommOptions options);
  ~ThreadGroup();
  ThreadGroup(const ThreadGroup&) = delete;
  ThreadGroup& operator=(const ThreadGroup&) = delete;

  // kUnavailable: ranks are missing, or one has failed. kInternal: the calls differ.
  [[nodiscard]] Status BarrierAndCheck(int rank, const ThreadCall& call);
  // REQUIRES: BarrierAndCheck() of this rank succeeded.
  void Finish(int rank);

  // Post() copies a message into a queue of the receiver; ReceiveMessage() returns the messages of
  // one sender in the order in which they were posted. kUnavailable: the sender has ended, or sent
  // nothing in time; kInternal: the size differs.
  [[nodiscard]] Status Post(int from, int to, const ConstBuffer& message);
  [[nodiscard]] Status ReceiveMessage(int from, int to, const MutableBuffer& message);

  // Between BarrierAndCheck() and Finish(): the published calls.
  [[nodiscard]] std::span<const ThreadCall> calls() const { return calls_; }
  [[nodiscard]] std::span<const int> world_ranks() const { return world_ranks_; }
  [[nodiscard]] int size() const { return static_cast<int>(world_ranks_.size()); }
  [[nodiscard]] const CommOptions& options() const { return options_; }
  [[nodiscard]] ThreadWorld& world() const { return *world_; }
  [[nodiscard]] const std::shared_ptr<ThreadWorld>& shared_world() const { return world_; }

  // New groups of Split(): written by the first member of a new group between BarrierAndCheck() and
  // Finish(), read by the others after Finish().
  [[nodiscard]] std::shared_ptr<ThreadGroup>& child(int rank) {
    return children_[static_cast<std::size_t>(rank)];
  }

 private:
  friend class ThreadWorld;
  [[nodiscard]] Status EnterLocked(int rank, const ThreadCall& call);
  [[nodiscard]] bool ArriveLocked(int rank);
  [[nodiscard]] Status CheckCallLocked(int rank) const;
  [[nodiscard]] Status CheckNobodyLeftLocked() const;
  [[nodiscard]] Status WaitForPeers(std::uint32_t seen, Entry mine);
  [[nodiscard]] Status NameMissing(std::uint32_t seen, Entry mine, std::chrono::nanoseconds waited);
  void Wake();
  [[nodiscard]] std::deque<std::vector<std::byte>>& Box(int from, int to) {
    return boxes_[static_cast<std::size_t>(from * size() + to)];
  }
  [[nodiscard]] Status CheckSender(int from, int to) const;

  const std::shared_ptr<ThreadWorld> world_;
  const std::vector<int> world_ranks_;
  const CommOptions options_;
  // Even: 2 * completed barriers. Odd: the world has failed. Written under the mutex of the world;
  // read without it by waiting threads.
  std::atomic<std::uint32_t> word_{0};
  int arrived_ = 0;
  int first_ = 0;  // the first rank to arrive at the current barrier
  std::uint64_t sequence_ = 0;
  std::vector<bool> has_arrived_;
  std::vector<ThreadCall> calls_;
  std::vector<std::shared_ptr<ThreadGroup>> children_;
  // Pending messages by sender and receiver; created at the first message.
  std::vector<std::deque<std::vector<std::byte>>> boxes_;
  // Changes with every message, failure and ended rank, so that a receiver checks again.
  std::atomic<std::uint32_t> posts_{0};
};

}  // namespace gaccd
