// Flags whose values have a syntax of their own.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/base/result.h"

namespace gaccd {

// --speed: relative speeds of the hosts of a run, or "measured".
//   list = item {"," item}     item = HOSTS ":" speed     HOSTS: ExpandHostlist(), without commas
//                              outside of brackets
// "n[1-20]:1,n[21-30]:0.6". A speed is the number of samples that a rank computes in the time in
// which a rank of speed 1 computes one. All ranks of a host have its speed; hosts that are not
// listed have speed 1.
struct HostSpeed {
  std::string host;
  double speed = 1;
};

struct SpeedFlag {
  bool measured = false;         // if true, hosts is empty
  std::vector<HostSpeed> hosts;  // in the order of the list
};

// kUsage, with the item: hosts without a speed, a speed that is not a number from kMinSpeed to
// kMaxSpeed, an invalid host list, a duplicate host.
[[nodiscard]] Result<SpeedFlag> ParseSpeedFlag(std::string_view text);

// The speed of every rank; host_of[rank] is its host. A name with a domain also matches the part
// before its first dot, if only one host has that part. Empty if the flag is "measured". kConfig
// for a host of the flag without ranks, a duplicate host, or an ambiguous name.
[[nodiscard]] Result<std::vector<double>> RankSpeeds(const SpeedFlag& flag,
                                                     std::span<const std::string> host_of);

// If hosts are not known yet: those of the flag are the first nodes, in order. kConfig if there are
// more than `nodes`.
[[nodiscard]] Result<std::vector<double>> RankSpeedsByNode(const SpeedFlag& flag,
                                                           std::int64_t nodes,
                                                           std::int64_t ranks_per_node);

// --memory: the memory of a rank, "80GB", "512 MiB", "1.5GB": a number above 0 with a unit: B, kB
// or KB, MB, GB, TB (powers of 1000) or KiB, MiB, GiB, TiB (powers of 1024). The unit is required.

// Bytes, rounded down, at least 1. kUsage, with the text, if it is invalid or does not fit into 63
// bits.
[[nodiscard]] Result<std::int64_t> ParseMemory(std::string_view text);

}  // namespace gaccd
