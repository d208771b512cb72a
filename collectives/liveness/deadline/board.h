// The notice board of the ranks of one node, in shared memory: the current operation of each rank
// and its signs of life.
//
// Every rank writes only its own line; lines are 128 bytes apart so that two ranks never write to
// the same pair of cache lines. Zeroed memory is a valid board. Does not use MPI.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <span>
#include <vector>

#include "collectives/liveness/deadline/missing.h"

namespace gaccd {

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
