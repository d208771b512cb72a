// What NCCL needs to be told by environment variables and by arithmetic before it starts.
// Pure functions, except the one that changes the environment.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "collectives/base/environment.h"
#include "collectives/comm/communicator.h"

namespace gaccd {

// Ranks that find each other through one unique id. Its root answers each of them in turn, so that
// large worlds start sooner with several roots.
inline constexpr int kNcclRanksPerRoot = 64;

// The ranks that make a unique id, ascending: the first ranks of equal, neighbouring parts of the
// world, at most `ranks_per_root` each. The i-th id of ncclCommInitRankScalable serves the i-th
// part, so that a root is among its own ranks. {0} for small worlds. REQUIRES: both >= 1.
[[nodiscard]] std::vector<int> NcclRoots(int ranks, int ranks_per_root = kNcclRanksPerRoot);

using EnvironmentSettings = std::vector<std::pair<std::string, std::string>>;

// For every run: NCCL's RAS service would listen on a port, without asking who connects.
[[nodiscard]] EnvironmentSettings NcclSettings();

// For several ranks on one GPU (tests). NCCL refuses a GPU twice on one host, so every rank says it
// is a host of its own, and everything then goes through sockets: of the loopback device when all
// ranks are on one machine. Kernels stay small, since those of both ranks share the GPU.
[[nodiscard]] EnvironmentSettings NcclSharingSettings(const Topology& topology, int rank);

// What of `settings` the environment does not say yet: what a user has set stays.
[[nodiscard]] EnvironmentSettings MissingSettings(const EnvironmentSettings& settings,
                                                  const Environment& env);

// Puts them into the environment of this process. NCCL reads NCCL_HOSTID at its first call and
// never again: call this before. Not thread-safe, as setenv.
void ApplySettings(const EnvironmentSettings& settings);

}  // namespace gaccd
