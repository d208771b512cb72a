// Environment variables and computed settings for NCCL. Pure functions, except the two that read or
// change the environment of this process.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "collectives/base/environment.h"

namespace gaccd {

// Ranks that connect through one unique id. Its root serves them one after another, so large worlds
// start faster with several roots.
inline constexpr int kNcclRanksPerRoot = 64;

// The ranks that create a unique id, ascending: the first ranks of equal, contiguous parts of the
// world with at most `ranks_per_root` ranks each. The i-th id of ncclCommInitRankScalable serves
// the i-th part, so that a root is among its own ranks. {0} for small worlds. REQUIRES: both >= 1.
[[nodiscard]] std::vector<int> NcclRoots(int ranks, int ranks_per_root = kNcclRanksPerRoot);

using EnvironmentSettings = std::vector<std::pair<std::string, std::string>>;

// For every run: disables NCCL's RAS service, which would listen on a port without authentication,
// and symmetric windows (NcclOptions::windows); and as many hardware queues for the streams of CUDA
// as it allows. With its default of 8 streams share queues, where a message that waits for its
// receiver delays the messages and kernels behind it, on which the receiver may wait.
[[nodiscard]] EnvironmentSettings NcclSettings();
// A warning for pipelines if the user has set fewer hardware queues than a stage has streams, as
// scripts for Megatron do; otherwise empty.
[[nodiscard]] std::string FewHardwareQueues(const Environment& env);
// Maximum number of multiprocessors per collective (an H200 has 132). More do not increase the
// bandwidth, and leave fewer for the kernels of the backward pass.
inline constexpr int kNcclMaxCtas = 16;
// kNcclMaxCtas, or NCCL_MAX_CTAS if the user has set it, which NCCL prefers.
[[nodiscard]] int NcclMaxCtas(const Environment& env);
// Whether the user has requested windows by NCCL_WIN_ENABLE=1.
[[nodiscard]] bool NcclWindowsWanted(const Environment& env);

// For reproducible runs: one algorithm, and no sums in the switch (NVLS).
[[nodiscard]] EnvironmentSettings NcclDeterministicSettings();

// For several ranks on one GPU (tests). NCCL rejects using a GPU twice on one host, so every rank
// claims to be a separate host, `process` (any name that no other rank has); all communication then
// uses sockets, on the loopback device if `env` says that all ranks are on one node. Kernels are
// small, since the ranks share the GPU.
[[nodiscard]] EnvironmentSettings NcclSharingSettings(const Environment& env,
                                                      const std::string& process);

// "n3-4711": this host and process.
[[nodiscard]] std::string HostAndProcess();

// The settings that are not in the environment yet: variables set by the user are kept.
[[nodiscard]] EnvironmentSettings MissingSettings(const EnvironmentSettings& settings,
                                                  const Environment& env);

// Sets the environment of this process. Call before the first thread starts, which may read the
// environment; NCCL reads NCCL_HOSTID only at its first call.
void ApplySettings(const EnvironmentSettings& settings);

}  // namespace gaccd
