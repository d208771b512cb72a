// --speed: how fast the hosts of a run are, as its user says, or "measured".
//   list = item {"," item}     item = HOSTS ":" speed     HOSTS: ExpandHostlist(), without commas
//                              outside of brackets
// "n[1-20]:1,n[21-30]:0.6". A speed is relative: what a rank computes in the time in which a rank
// of speed 1 computes one sample. All ranks of a host have its speed; those of a host that is not
// named have 1.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/base/result.h"

namespace gaccd {

struct HostSpeed {
  std::string host;
  double speed = 1;
};

struct SpeedFlag {
  bool measured = false;         // then no hosts
  std::vector<HostSpeed> hosts;  // in the order of the list
};

// kUsage, with the item: hosts without a speed, a speed that is no number from kMinSpeed to
// kMaxSpeed, a host list that cannot be read, a host twice.
[[nodiscard]] Result<SpeedFlag> ParseSpeedFlag(std::string_view text);

// Of every rank, where host_of[rank] is the name of its host. A name without a domain, on either
// side, is that of the one host that has it before its first dot. Empty where the flag is
// "measured". kConfig for a host of the flag that no rank runs on, that comes twice, or whose name
// several hosts have.
[[nodiscard]] Result<std::vector<double>> SpeedsOfRanks(const SpeedFlag& flag,
                                                        std::span<const std::string> host_of);

// Where the hosts are not known yet: those of the flag are the first nodes, in its order. kConfig
// when they are more than `nodes`.
[[nodiscard]] Result<std::vector<double>> SpeedsOfNodes(const SpeedFlag& flag, std::int64_t nodes,
                                                        std::int64_t ranks_per_node);

}  // namespace gaccd
