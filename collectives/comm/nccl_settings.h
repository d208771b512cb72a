// What NCCL needs before it starts: environment variables, and arithmetic for its settings.
// Pure functions, except the two that ask for this process or change its environment.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "collectives/base/environment.h"

namespace gaccd {

// Ranks that find each other through one unique id. Its root answers each of them in turn, so that
// large worlds start sooner with several roots.
inline constexpr int kNcclRanksPerRoot = 64;

// The ranks that make a unique id, ascending: the first ranks of equal, neighbouring parts of the
// world, at most `ranks_per_root` each. The i-th id of ncclCommInitRankScalable serves the i-th
// part, so that a root is among its own ranks. {0} for small worlds. REQUIRES: both >= 1.
[[nodiscard]] std::vector<int> NcclRoots(int ranks, int ranks_per_root = kNcclRanksPerRoot);

using EnvironmentSettings = std::vector<std::pair<std::string, std::string>>;

// For every run: NCCL's RAS service would listen on a port, without asking who connects; no
// symmetric windows (NcclOptions::windows).
[[nodiscard]] EnvironmentSettings NcclSettings();
// Multiprocessors that a collective takes at most (of an H200: 132). More move no more data, and
// the kernels of the backward pass that run at the same time lose them.
inline constexpr int kNcclMaxCtas = 16;
// The same where a user has set NCCL_MAX_CTAS, which NCCL prefers.
[[nodiscard]] int NcclMaxCtas(const Environment& env);
// Whether a user has asked for windows: by NCCL_WIN_ENABLE=1.
[[nodiscard]] bool NcclWindowsWanted(const Environment& env);

// For runs that ask for the same bits every time: one algorithm, and no sums in the switch (NVLS).
[[nodiscard]] EnvironmentSettings NcclDeterministicSettings();

// For several ranks on one GPU (tests). NCCL refuses a GPU twice on one host, so every rank says it
// is a host of its own, `process` (any name that no other rank has), and everything then goes
// through sockets: of the loopback device where `env` says that all ranks are on one node. Kernels
// stay small, since those of both ranks share the GPU.
[[nodiscard]] EnvironmentSettings NcclSharingSettings(const Environment& env,
                                                      const std::string& process);

// "n3-4711": this host and process.
[[nodiscard]] std::string HostAndProcess();

// What of `settings` the environment does not say yet: what a user has set stays.
[[nodiscard]] EnvironmentSettings MissingSettings(const EnvironmentSettings& settings,
                                                  const Environment& env);

// Puts them into the environment of this process. Before its first thread, which may read the
// environment meanwhile; NCCL reads NCCL_HOSTID at its first call and never again.
void ApplySettings(const EnvironmentSettings& settings);

}  // namespace gaccd
