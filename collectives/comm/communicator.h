// Communicator: a group of ranks and the collective operations between them.
//
// Every rank of the group must call the same operations in the same order with the same sizes,
// types and counts. Used by one thread at a time. Operations block until the result is available,
// except on device buffers, where they are enqueued on `stream`.
//
// Every operation has a deadline (CommOptions::bound). When it passes, every living rank gets a
// kUnavailable error with the names of the missing ranks. Afterwards the communicator only returns
// that error, and the caller should call Abort(). In-process implementations: MakeSingle(),
// RunThreadRanks(); across processes: MakeMpi().
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

#include "collectives/base/dtype.h"
#include "collectives/base/result.h"
#include "collectives/liveness/deadline/deadline.h"
#include "collectives/liveness/deadline/missing.h"

namespace gaccd {

struct CommOptions {
  // Time limit of an operation: every rank returns from it within this time after a peer died or
  // hangs.
  std::chrono::milliseconds bound{60'000};
  // The largest piece moved at once through staging memory, and the largest MPI count. Tests use
  // tiny values.
  std::size_t segment_elements = std::size_t{1} << 20;
  // Checked in every wait across processes: once raised, the wait ends with its reason. May be
  // null.
  std::shared_ptr<const Interrupt> interrupt;
};

// Location of the ranks of a communicator. Ranks of one node need not be consecutive.
struct Topology {
  std::vector<std::string> hosts;  // by rank
  std::vector<int> node_of;        // by rank: 0..nodes-1, numbered by their lowest rank
  int nodes = 1;
  int local_rank = 0;  // index of this rank among the ranks of its node, in rank order
  int local_size = 1;
};

// The failure of a communicator, which from then on only returns its error.
struct CommFailure {
  Entry entry;                       // the operation and its number
  std::vector<MissingRank> missing;  // empty: not known on this rank
};

// Memory from Communicator::Allocate. Aligned to 4096 bytes, zeroed, freed by the destructor, which
// is not collective. The memory must then not be in use by a collective.
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
// In ordinary process memory, for single and thread communicators; pages are allocated when they
// are written. NoMemory() if the system has none left.
[[nodiscard]] Result<std::unique_ptr<CommMemory>> AllocateHostMemory(std::size_t bytes);

// Bytes that a rank sends to other ranks. Defined by the operation, not by the transport
// (collectives/comm/communicator.cc).
struct CommTraffic {
  std::int64_t sent = 0;           // to all others
  std::int64_t between_nodes = 0;  // the part that leaves the node

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

  [[nodiscard]] virtual std::string_view name() const = 0;  // "single", "threads", "mpi", "nccl"
  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;
  [[nodiscard]] virtual const Topology& topology() const = 0;

  // Memory in which this communicator reduces fastest: in place, without copies. Collective; all
  // ranks request the same number of bytes. Other memory works too, somewhat slower.
  virtual Result<std::unique_ptr<CommMemory>> Allocate(std::size_t bytes) = 0;

  // out[i] = sum over ranks of in[i]. `in` and `out` are the same memory or do not overlap. f32,
  // f64, i32, i64 are added in that type; bf16 is added in f32 and rounded once. Reproducibility:
  //   on all ranks of one call   the same bits
  //   from run to run            the same bits for host buffers of one node, which are added in
  //                              rank order, whether ranks are threads or processes; for integers
  //                              always. Between nodes and on GPUs, MPI and NCCL choose the order,
  //                              which may differ in the next run.
  //   bf16 on GPUs               NCCL rounds to bf16 after every addition
  Status AllReduceSum(ConstBuffer in, MutableBuffer out, StreamHandle stream = {});

  // Sums several buffers in place; on GPUs in one step, as each step has a cost.
  Status AllReduceSums(std::span<const MutableBuffer> buffers, StreamHandle stream = {});

  // out = in of rank 0, in of rank 1, ... ; counts[r] = elements of rank r (may be 0; equal on all
  // ranks); in.count == counts[rank()], out.count == their sum. `in` is this rank's part of `out`,
  // or does not overlap it.
  Status AllGather(ConstBuffer in, std::span<const std::int64_t> counts, MutableBuffer out,
                   StreamHandle stream = {});

  // The reverse: in.count == sum of counts; rank r receives the sum over ranks of its part, added
  // as in AllReduceSum() if all ranks are on one node. `out` is this rank's part of `in`, whose
  // other parts are then unchanged, or does not overlap it.
  Status ReduceScatter(ConstBuffer in, std::span<const std::int64_t> counts, MutableBuffer out,
                       StreamHandle stream = {});

  Status Broadcast(MutableBuffer buffer, int root, StreamHandle stream = {});

  // Point-to-point messages. Messages from one sender arrive in the order in which they were sent,
  // each complete and unchanged. They are not collectives and are not counted as such.
  // Host memory: Send() copies and returns at once. Before its next collective on any communicator,
  // a rank must call FlushSends(), which waits until its messages have been sent. Receive() waits
  // for the next message of `from`, with the time limit of collectives.
  // Device memory: both are enqueued on `stream` without a copy: work enqueued later runs after the
  // message has arrived, and its memory must not change until then. A message may block its sender
  // until the receiver is ready, and all operations enqueued on one communicator run one after the
  // other, on whatever streams. So two ranks that both send before they receive may deadlock; use
  // one communicator per direction (Split()).
  Status Send(ConstBuffer message, int to, StreamHandle stream = {});
  Status Receive(MutableBuffer message, int from, StreamHandle stream = {});
  virtual Status FlushSends() { return Status::Ok(); }
  // Sets the stream that reads the messages of later Receive() calls in device memory; default: the
  // stream of the receive. The deadline of a receive begins when earlier work on this stream is
  // done, although the receive may wait for its sender before that.
  virtual void SetReader(StreamHandle /*reader*/) {}
  // Collective, of two ranks: sets up messages in both directions. Otherwise the first Send() in
  // device memory may block the host until the other rank calls Receive().
  virtual Status ConnectMessages() { return Status::Ok(); }

  // Memory kind of Allocate(). kCuda: operations also accept device buffers; host buffers are
  // always accepted.
  [[nodiscard]] virtual MemoryKind memory() const { return MemoryKind::kHost; }
  // Returns the first error of the enqueued operations on device buffers, including those of
  // communicators split from this one; it then fails this communicator too. Never waits; call it
  // while waiting for a stream.
  virtual Status Poll() { return Status::Ok(); }
  // Call after an error elsewhere, for example of another communicator: enqueued operations on
  // device buffers end soon, completed or not, and `error` becomes the first error if there was
  // none.
  virtual void CancelPending(const Status& /*error*/) {}

  // Bytes sent by this rank in successful operations so far, including communicators split from
  // this one. Thread-safe.
  [[nodiscard]] CommTraffic traffic() const {
    return {.sent = traffic_->sent.load(), .between_nodes = traffic_->between_nodes.load()};
  }

  // Empty if there was no failure. Always empty if ranks are threads of one process.
  [[nodiscard]] virtual std::optional<CommFailure> failure() const { return std::nullopt; }

  virtual Status Barrier() = 0;

  // A communicator of the ranks with the same color (>= 0), ordered by (key, rank). Collective.
  // color < 0: this rank belongs to none and gets a null pointer.
  virtual Result<std::unique_ptr<Communicator>> Split(int color, int key) = 0;

  // Ends the whole group as fast as possible. Across processes it does not return (every process
  // exits non-zero, this one with exit_code); among threads every waiting rank gets an error.
  virtual void Abort(int exit_code) noexcept = 0;

 protected:
  Communicator() = default;

  // Counts the traffic of `part`, from Split(), here too.
  void ShareTrafficCounters(Communicator& part) { part.traffic_ = traffic_; }

 private:
  // Implementations of the operations. The public functions have already checked, for all
  // transports: no earlier failure, valid arguments, and on devices a non-empty buffer.
  virtual Status DoAllReduceSum(ConstBuffer in, MutableBuffer out, StreamHandle stream) = 0;
  virtual Status DoAllReduceSums(std::span<const MutableBuffer> buffers, StreamHandle stream);
  virtual Status DoAllGather(ConstBuffer in, std::span<const std::int64_t> counts,
                             MutableBuffer out, StreamHandle stream) = 0;
  virtual Status DoReduceScatter(ConstBuffer in, std::span<const std::int64_t> counts,
                                 MutableBuffer out, StreamHandle stream) = 0;
  virtual Status DoBroadcast(MutableBuffer buffer, int root, StreamHandle stream) = 0;
  virtual Status DoSend(ConstBuffer message, int to, StreamHandle stream);
  virtual Status DoReceive(MutableBuffer message, int from, StreamHandle stream);
  // An earlier failure of this rank, if the transport does not report it itself.
  [[nodiscard]] virtual Status FirstFailure() const { return Status::Ok(); }
  // Called for invalid arguments of this rank: returns `error`, and ends the wait of the other
  // ranks.
  virtual Status Refuse(Status error) { return error; }

  // Adds the traffic of an operation if it succeeded.
  template <typename Traffic>
  Status Count(Status done, const Traffic& traffic);

  // Operations accept buffers of memory(), and always host buffers.
  [[nodiscard]] MemoryKind KindFor(MemoryKind first) const {
    return first == MemoryKind::kHost ? first : memory();
  }

  struct TrafficCounters {  // communicators split from this one may be used by other threads
    std::atomic<std::int64_t> sent{0};
    std::atomic<std::int64_t> between_nodes{0};
  };
  std::shared_ptr<TrafficCounters> traffic_ = std::make_shared<TrafficCounters>();
};

// The values of all ranks, by rank; every rank passes the same number of them.
template <Element T>
[[nodiscard]] Result<std::vector<T>> GatherAll(Communicator& comm, std::span<const T> mine) {
  const std::vector<std::int64_t> counts(static_cast<std::size_t>(comm.size()), std::ssize(mine));
  std::vector<T> all(counts.size() * mine.size());
  GACCD_RETURN_IF_ERROR(comm.AllGather(View(mine), counts, View(std::span<T>(all))));
  return all;
}
template <Element T>
[[nodiscard]] Result<std::vector<T>> GatherAll(Communicator& comm, T mine) {
  return GatherAll(comm, std::span<const T>(&mine, 1));
}

// A group of one rank. Every operation is a copy.
[[nodiscard]] std::unique_ptr<Communicator> MakeSingle();

}  // namespace gaccd
