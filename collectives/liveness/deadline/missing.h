// The ranks missing in a collective operation, and the error that names them.
//
// Every rank counts its operations: the n-th one has sequence number n (from 1). On entering it, a
// rank publishes an Entry; a rank whose published number is smaller than ours is behind. Pure
// functions without MPI, thread-safe.
#pragma once

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

}  // namespace gaccd
