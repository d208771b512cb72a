// The ranks that are missing in a collective operation, and the error that names them.
//
// Every rank counts its operations: the n-th one has sequence number n (the first is 1). On
// entering it publishes an Entry; a rank whose published number is below ours is behind. Pure
// functions, no MPI, thread-safe.
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

// What a rank published last. The packed form fits one atomic word, so that a reader never sees a
// number of one operation with the name of another.
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
  kBehind,   // alive as far as we know, but did not enter the operation
  kStalled,  // entered it, then showed no sign of life: stopped, or stuck in the system
  kEnded,    // its process does not exist any more
  kSilent,   // its whole node sent no report
  kGaveUp,   // left the operation with an error
};

struct MissingRank {
  int rank = 0;
  Absence absence = Absence::kBehind;

  bool operator==(const MissingRank&) const = default;
};

// "all-reduce #17".
[[nodiscard]] std::string Numbered(Entry entry);
// "rank 3 on n1". hosts: by rank; "?" for a rank that it does not have.
[[nodiscard]] std::string RankOnHost(int rank, std::span<const std::string> hosts);
// What is said of a rank whose process is gone: "rank 3 on n1" + this.
inline constexpr std::string_view kHasEnded = " has ended (its process does not exist)";

// The same without those who merely gave up because of others, if there are others, in rank order
// and each rank once.
[[nodiscard]] std::vector<MissingRank> Offenders(std::vector<MissingRank> missing);

// kUnavailable: "all-reduce #17 ended after 3.5 s (bound 5 s): rank 3 on n2 did not enter
// all-reduce #17; rank 5 on n3 has ended (its process does not exist)". hosts: by rank.
// With an empty list the message is that every rank entered but the operation did not complete.
[[nodiscard]] Status MissingError(Entry mine, std::chrono::nanoseconds waited,
                                  std::chrono::milliseconds bound,
                                  std::span<const MissingRank> missing,
                                  std::span<const std::string> hosts);

// kUnavailable: a message of `from` did not come within the bound.
[[nodiscard]] Status LateMessageError(int from, std::chrono::milliseconds bound,
                                      std::span<const std::string> hosts);
// kInternal: it came with another number of bytes.
[[nodiscard]] Status MessageSizeError(int from, std::size_t expected, std::size_t found,
                                      std::span<const std::string> hosts);

// kInternal: two ranks are in different operations under the same number.
// "rank 2 on n1 entered broadcast #17 where rank 0 on n0 entered all-reduce #17".
[[nodiscard]] Status MismatchError(Entry mine, int my_rank, Entry other, int other_rank,
                                   std::span<const std::string> hosts);

}  // namespace gaccd
