// The ranks missing in a collective operation, and the error that names them.
//
// Every rank counts its operations: the n-th one has sequence number n (from 1). On entering it, a
// rank publishes an Entry; a rank whose published number is smaller than ours is behind. Pure
// functions without MPI, thread-safe.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/base/result.h"

namespace gaccd {

enum class Operation : std::uint8_t {
  kNone,
  kAllReduce,
  kAllGather,
  kReduceScatter,
  kBroadcast,
  kBarrier,
  kAllocate,
  kSplit,
  kMessage,
};
// "all-reduce", "all-gather", ...
[[nodiscard]] std::string_view Name(Operation operation);

// The latest published state of a rank. The packed form is one atomic word, so that a reader never
// sees the number of one operation with the name of another.
struct Entry {
  std::uint64_t sequence = 0;
  Operation operation = Operation::kNone;

  bool operator==(const Entry&) const = default;
};
[[nodiscard]] constexpr std::uint64_t Pack(Entry entry) {
  return (entry.sequence << 8) | static_cast<std::uint64_t>(entry.operation);
}
[[nodiscard]] constexpr Entry Unpack(std::uint64_t word) {
  return {word >> 8, static_cast<Operation>(word & 0xff)};
}

enum class Absence : std::uint8_t {
  kBehind,   // alive as far as known, but has not entered the operation
  kStalled,  // entered it, then showed no sign of life: stopped, or blocked in the kernel
  kEnded,    // its process no longer exists
  kSilent,   // its whole node sent no report
  kGaveUp,   // returned from the operation with an error
};

struct MissingRank {
  int rank = 0;
  Absence absence = Absence::kBehind;

  bool operator==(const MissingRank&) const = default;
};

// "all-reduce #17".
[[nodiscard]] std::string Numbered(Entry entry);
// "rank 3 on n1". hosts: by rank; "?" for an unknown rank.
[[nodiscard]] std::string RankOnHost(int rank, std::span<const std::string> hosts);
// Suffix of the message for a rank whose process is gone: "rank 3 on n1" + this.
inline constexpr std::string_view kHasEnded = " has ended (its process does not exist)";

// Removes ranks that gave up if others are missing; in rank order, each rank once.
[[nodiscard]] std::vector<MissingRank> Offenders(std::vector<MissingRank> missing);

// kUnavailable: "all-reduce #17 ended after 3.5 s (bound 5 s): rank 3 on n2 did not enter
// all-reduce #17; rank 5 on n3 has ended (its process does not exist)". hosts: by rank. With an
// empty list the message says that every rank entered but the operation did not complete.
[[nodiscard]] Status MissingError(Entry mine, std::chrono::nanoseconds waited,
                                  std::chrono::milliseconds bound,
                                  std::span<const MissingRank> missing,
                                  std::span<const std::string> hosts);

// kUnavailable: a message from `from` did not arrive within the bound.
[[nodiscard]] Status LateMessageError(int from, std::chrono::milliseconds bound,
                                      std::span<const std::string> hosts);
// kInternal: it arrived with a different number of bytes.
[[nodiscard]] Status MessageSizeError(int from, std::size_t expected, std::size_t found,
                                      std::span<const std::string> hosts);

// kInternal: two ranks are in different operations with the same number. "rank 2 on n1 entered
// broadcast #17 where rank 0 on n0 entered all-reduce #17".
[[nodiscard]] Status MismatchError(Entry mine, int my_rank, Entry other, int other_rank,
                                   std::span<const std::string> hosts);

// The notice board of the ranks of one node, in shared memory: the current operation of each rank
// and its signs of life.
//
// Every rank writes only its own line; lines are 128 bytes apart so that two ranks never write to
// the same pair of cache lines. Zeroed memory is a valid board. Does not use MPI.

// The published state of a rank's current operation. Two alternate: a fast rank may write operation
// n + 1 while slower ranks still read operation n.
struct CallNotice {
  std::atomic<std::uint64_t> entry;  // Pack(Entry)
  std::atomic<std::uint64_t> shape;  // hash of count, type, ...: must be equal on all ranks
  std::atomic<std::int64_t> place;   // window and offset of the data, or kPrivate
};

// CallNotice::place of memory that the other ranks cannot see.
inline constexpr std::int64_t kPrivate = -1;

// Why a rank has given up, for ranks that still wait for it.
enum class GivenUp : std::uint64_t { kNo, kLate, kOther };

struct alignas(128) BoardLine {
  CallNotice calls[2];                  // by the lowest bit of the sequence number
  std::atomic<std::uint64_t> entry;     // the newest Pack(Entry); kNone after it has ended
  std::atomic<std::int64_t> alive_ms;   // BoardMillis() of the last sign of life in a wait
  std::atomic<std::uint64_t> given_up;  // GivenUp
  std::atomic<std::uint64_t> reported;  // 1: this rank has reported for its node
  std::atomic<std::int64_t> pid;
  std::atomic<std::uint64_t> pid_namespace;
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "shared between processes");
static_assert(sizeof(BoardLine) == 128);

// The clock of alive_ms: monotonic, the same for all processes of a node.
[[nodiscard]] std::int64_t BoardMillis();

// A query of the board when an operation does not complete.
struct BoardQuery {
  Entry mine;                                  // the operation
  int line = 0;                                // line of the querying rank
  std::span<const int> ranks;                  // the ranks by line
  std::span<const int> ended;                  // lines whose process is dead
  bool late = false;                           // whether the deadline has passed
  std::chrono::milliseconds stalled_after{0};  // time without a sign of life
};

// The ended ranks; if there are none and `late`, those that are behind or stalled; if there are
// none of these either, those that gave up.
[[nodiscard]] std::vector<MissingRank> FindMissing(std::span<const BoardLine> board,
                                                   const BoardQuery& query);

}  // namespace gaccd
