// Communicator: a group of ranks and the collective operations between them.
//
// Every rank of the group calls the same operations in the same order with the same sizes, types
// and counts. A communicator is used by one thread at a time. All operations block until the result
// is in place, except on device buffers, where they are enqueued on `stream`.
//
// Every operation has a deadline (CommOptions::bound). When it passes, the ranks that did not come
// are named in the error (kind kUnavailable), on every rank that is still alive; after that the
// communicator only answers with that error and the caller is expected to leave by Abort().
// In-process implementations: MakeSingle(), RunThreadRanks(); across processes: MakeMpi().
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/base/buffer.h"
#include "collectives/base/result.h"
#include "collectives/liveness/deadline/interrupt.h"
#include "collectives/liveness/deadline/missing.h"

namespace gaccd {

struct CommOptions {
  // Time limit for an operation: every rank returns from it within this time after a peer died or
  // hangs.
  std::chrono::milliseconds bound{60'000};
  // Largest piece moved at once through staging memory, and largest MPI count. Tests make it tiny.
  std::size_t segment_elements = std::size_t{1} << 20;
  // Looked at in every wait across processes: once raised, the wait ends with its reason. May be
  // null.
  std::shared_ptr<const Interrupt> interrupt;
};

// Where the ranks of a communicator run. Ranks of one node need not be neighbours in rank order.
struct Topology {
  std::vector<std::string> hosts;  // by rank
  std::vector<int> node_of;        // by rank: 0..nodes-1, numbered by their lowest rank
  int nodes = 1;
  int local_rank = 0;  // position of this rank among the ranks of its node, in rank order
  int local_size = 1;
};

// What a communicator failed at: from then on it only answers with that error.
struct CommFailure {
  Entry entry;                       // the operation and its number
  std::vector<MissingRank> missing;  // empty: not known here
};

// Memory from Communicator::Allocate. Aligned to 4096 bytes, zeroed, freed by the destructor, which
// is not collective, but the memory must not be in use by a collective then.
class CommMemory {
 public:
  virtual ~CommMemory() = default;
  CommMemory(const CommMemory&) = delete;
  CommMemory& operator=(const CommMemory&) = delete;

  [[nodiscard]] virtual void* data() const = 0;
  [[nodiscard]] virtual std::size_t bytes() const = 0;

 protected:
  CommMemory() = default;
};

// Bytes that a rank sends to others, whichever way they take in the end: they do not depend on the
// transport (collectives/comm/traffic.h).
struct CommTraffic {
  std::int64_t sent = 0;           // to all others
  std::int64_t between_nodes = 0;  // those of them that leave the node

  CommTraffic& operator+=(const CommTraffic& other) {
    sent += other.sent;
    between_nodes += other.between_nodes;
    return *this;
  }
  friend bool operator==(const CommTraffic&, const CommTraffic&) = default;
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  [[nodiscard]] virtual std::string_view name() const = 0;  // "single", "threads", "mpi"
  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;
  [[nodiscard]] virtual const Topology& topology() const = 0;

  // Memory in which this communicator reduces fastest: in place, without copies. Collective; all
  // ranks ask for the same number of bytes. Any other memory works too, a little slower.
  virtual Result<std::unique_ptr<CommMemory>> Allocate(std::size_t bytes) = 0;

  // out[i] = sum over ranks of in[i]. `in` and `out` are the same memory or do not overlap. f32,
  // f64, i32, i64, added in that type; bf16, added in f32 and rounded once. What holds:
  //   on all ranks of one call   the same bits
  //   from run to run            the same bits for host buffers of one node, which are added in
  //                              rank order, whether ranks are threads or processes; for integers
  //                              always. Between nodes and on GPUs MPI and NCCL choose the order
  //                              and may choose another one in the next run.
  //   bf16 on GPUs               NCCL rounds to bf16 after every addition
  Status AllReduceSum(ConstBuffer in, MutableBuffer out, StreamHandle stream = {});

  // The same for several buffers, each in place: on GPUs in one step, for each step has its cost.
  Status AllReduceSums(std::span<const MutableBuffer> buffers, StreamHandle stream = {});

  // out = in of rank 0, in of rank 1, ... ; counts[r] = elements of rank r (may be 0; equal on all
  // ranks); in.count == counts[rank()], out.count == their sum. `in` is this rank's part of `out`,
  // or apart from it.
  Status AllGather(ConstBuffer in, std::span<const std::int64_t> counts, MutableBuffer out,
                   StreamHandle stream = {});

  // The reverse: in.count == sum of counts; rank r receives the sum over ranks of its part, added
  // as AllReduceSum() adds where all ranks are on one node. `out` is this rank's part of `in`, of
  // which nothing else is changed then, or apart from it.
  Status ReduceScatter(ConstBuffer in, std::span<const std::int64_t> counts, MutableBuffer out,
                       StreamHandle stream = {});

  Status Broadcast(MutableBuffer buffer, int root, StreamHandle stream = {});

  // A message between two ranks. Messages of one sender arrive in the order in which it sent them;
  // each is received whole, with the bytes that were sent. They are not collectives and do not
  // count as such.
  // In host memory Send() copies and returns at once; a rank calls FlushSends() before its next
  // collective on any communicator, and it waits until its messages have left. Receive() waits for
  // the next one of `from`, with the time limit of the others.
  // In device memory both are enqueued on `stream`, and nothing is copied: what is enqueued there
  // later runs when the message has arrived, and until then its memory stays as it is. A message
  // may occupy its sender until its receiver is there, and all that a rank has enqueued on one
  // communicator, on whatever streams, runs one after the other. So two ranks that send before they
  // receive may wait for each other for ever: a communicator for each direction between two ranks
  // (Split()) has no such orders.
  Status Send(ConstBuffer message, int to, StreamHandle stream = {});
  Status Receive(MutableBuffer message, int from, StreamHandle stream = {});
  virtual Status FlushSends() { return Status::Ok(); }
  // Collective, of two ranks: sets up what messages in both directions need. Without it the first
  // Send() in device memory may wait on the host until the other rank has come to its Receive().
  virtual Status ConnectMessages() { return Status::Ok(); }

  // Where the memory of Allocate() lives. kCuda: operations also take device buffers; host buffers
  // are always taken.
  [[nodiscard]] virtual MemoryKind memory() const { return MemoryKind::kHost; }
  // The state of the enqueued operations on device buffers: the first error, named like
  // those of the others, also of communicators that were split from this one, which then has
  // failed, too. Never waits; to be asked while waiting for a stream.
  virtual Status Poll() { return Status::Ok(); }
  // After an error elsewhere, as of another communicator of the same work: what was enqueued on
  // device buffers ends soon, done or not, and this is the first error, if there was none.
  virtual void GiveUp(const Status& /*error*/) {}

  // Of this rank in the operations so far that went well, with those of communicators that were
  // split from this one. May be asked by any thread.
  [[nodiscard]] CommTraffic traffic() const {
    return {.sent = traffic_->sent.load(), .between_nodes = traffic_->between_nodes.load()};
  }

  // Nothing as long as all went well. Where ranks are threads of one process: always nothing.
  [[nodiscard]] virtual std::optional<CommFailure> failure() const { return std::nullopt; }

  virtual Status Barrier() = 0;

  // A communicator of the ranks with the same color (>= 0), ordered by (key, rank). Collective.
  // color < 0: this rank is in none and gets a null pointer.
  virtual Result<std::unique_ptr<Communicator>> Split(int color, int key) = 0;

  // Ends the whole group as fast as possible. Across processes it does not return (every process
  // exits non-zero, this one with exit_code); among threads every waiting rank gets an error.
  virtual void Abort(int exit_code) noexcept = 0;

 protected:
  Communicator() = default;

  // What `part`, from Split(), sends is counted here, too.
  void CountTrafficOf(Communicator& part) { part.traffic_ = traffic_; }

 private:
  // The operations above check once for all transports: no failure before, right arguments, and
  // on devices something to do. These do the work.
  virtual Status DoAllReduceSum(ConstBuffer in, MutableBuffer out, StreamHandle stream) = 0;
  virtual Status DoAllReduceSums(std::span<const MutableBuffer> buffers, StreamHandle stream);
  virtual Status DoAllGather(ConstBuffer in, std::span<const std::int64_t> counts,
                             MutableBuffer out, StreamHandle stream) = 0;
  virtual Status DoReduceScatter(ConstBuffer in, std::span<const std::int64_t> counts,
                                 MutableBuffer out, StreamHandle stream) = 0;
  virtual Status DoBroadcast(MutableBuffer buffer, int root, StreamHandle stream) = 0;
  virtual Status DoSend(ConstBuffer message, int to, StreamHandle stream);
  virtual Status DoReceive(MutableBuffer message, int from, StreamHandle stream);
  // What this rank failed at before, where the transport does not find it by itself.
  [[nodiscard]] virtual Status FirstFailure() const { return Status::Ok(); }
  // An argument of this rank is wrong: returns `error`, and lets nobody wait for it.
  virtual Status Refuse(Status error) { return error; }

  // Adds what an operation sent, if it went well.
  template <typename Traffic>
  Status Count(Status done, const Traffic& traffic);

  // Operations take buffers of memory(), and always those of the host.
  [[nodiscard]] MemoryKind KindFor(MemoryKind first) const {
    return first == MemoryKind::kHost ? first : memory();
  }

  struct TrafficCounters {  // parts of a communicator may be used by other threads
    std::atomic<std::int64_t> sent{0};
    std::atomic<std::int64_t> between_nodes{0};
  };
  std::shared_ptr<TrafficCounters> traffic_ = std::make_shared<TrafficCounters>();
};

// A group of one. Every operation is a copy.
[[nodiscard]] std::unique_ptr<Communicator> MakeSingle();

}  // namespace gaccd
