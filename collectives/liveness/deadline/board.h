// The notice board of the ranks of one node, in shared memory: who has entered which operation, who
// is alive.
//
// Every rank writes only its own line; lines are 128 bytes apart so that no two ranks write to one
// pair of cache lines. Zeroed memory is a valid board. No MPI here.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <span>
#include <vector>

#include "collectives/liveness/deadline/missing.h"

namespace gaccd {

// What a rank publishes about its current operation. Two of them alternate: while the slower ranks
// still read the notice of operation n, a faster one may write that of operation n + 1.
struct CallNotice {
  std::atomic<std::uint64_t> entry;  // Pack(Entry)
  std::atomic<std::uint64_t> shape;  // hash of count, type, ...: must be equal on all ranks
  std::atomic<std::int64_t> place;   // where in which window the data is, or kPrivate
};

// CallNotice::place of memory that the other ranks cannot see.
inline constexpr std::int64_t kPrivate = -1;

// Why a rank has given up, for those who still wait for it.
enum class GivenUp : std::uint64_t { kNo, kLate, kOther };

struct alignas(128) BoardLine {
  CallNotice calls[2];                  // by the lowest bit of the sequence number
  std::atomic<std::uint64_t> entry;     // the newest Pack(Entry); kNone once it is left
  std::atomic<std::int64_t> alive_ms;   // BoardMillis() of the last sign of life in a wait
  std::atomic<std::uint64_t> given_up;  // GivenUp
  std::atomic<std::uint64_t> reported;  // 1: this rank has spoken for its node
  std::atomic<std::int64_t> pid;
  std::atomic<std::uint64_t> pid_namespace;
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "shared between processes");
static_assert(sizeof(BoardLine) == 128);

// The clock of alive_ms: monotonic, the same for all processes of a node.
[[nodiscard]] std::int64_t BoardMillis();

// What is asked of the board when an operation does not complete.
struct BoardQuestion {
  Entry mine;                                  // the operation
  int line = 0;                                // who asks
  std::span<const int> ranks;                  // the ranks by line
  std::span<const int> ended;                  // lines whose process is dead
  bool late = false;                           // the deadline has passed
  std::chrono::milliseconds stalled_after{0};  // without a sign of life
};

// The dead; if there are none and it is late, those who are behind or stalled; if there are none of
// these either, those who gave up.
[[nodiscard]] std::vector<MissingRank> FindMissing(std::span<const BoardLine> board,
                                                   const BoardQuestion& question);

}  // namespace gaccd
