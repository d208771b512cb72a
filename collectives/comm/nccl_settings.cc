#include "collectives/comm/nccl_settings.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "collectives/base/strings.h"

namespace gaccd {
namespace {

constexpr const char* kHardwareQueues = "CUDA_DEVICE_MAX_CONNECTIONS";
// Streams of a pipeline stage: compute, copies, sums, and one per message ring; and the default.
constexpr int kStageStreams = 8;

}  // namespace

std::vector<int> NcclRoots(int ranks, int ranks_per_root) {
  const int roots = (ranks + ranks_per_root - 1) / ranks_per_root;
  std::vector<int> first;
  // The first ranks % roots parts have one more rank, as in NCCL.
  for (int i = 0; i < roots; ++i) {
    first.push_back(i * (ranks / roots) + std::min(i, ranks % roots));
  }
  return first;
}

EnvironmentSettings NcclSettings() {
  return {{"NCCL_RAS_ENABLE", "0"}, {"NCCL_WIN_ENABLE", "0"}, {kHardwareQueues, "32"}};
}

std::string FewHardwareQueues(const Environment& env) {
  const auto set = env(kHardwareQueues);
  const auto queues = set ? ToNumber<int>(*set) : std::nullopt;
  if (!queues || *queues >= kStageStreams) return {};
  return StrCat(kHardwareQueues, ": expected at least ", kStageStreams, " for a pipeline, found ",
                *queues, ": messages between stages may wait for each other for ever");
}

int NcclMaxCtas(const Environment& env) {
  const int ctas = ToNumber<int>(env("NCCL_MAX_CTAS").value_or("")).value_or(0);
  return ctas > 0 ? ctas : kNcclMaxCtas;
}

bool NcclWindowsWanted(const Environment& env) { return env("NCCL_WIN_ENABLE") == "1"; }

EnvironmentSettings NcclDeterministicSettings() {
  return {{"NCCL_NVLS_ENABLE", "0"}, {"NCCL_ALGO", "Ring"}};
}

EnvironmentSettings NcclSharingSettings(const Environment& env, const std::string& process) {
  const auto ranks = env("OMPI_COMM_WORLD_SIZE");
  const bool one_node =
      (ranks && ranks == env("OMPI_COMM_WORLD_LOCAL_SIZE")) || env("SLURM_STEP_NUM_NODES") == "1";
  EnvironmentSettings settings = {
      {"NCCL_HOSTID", process},      {"NCCL_NET", "Socket"},     {"NCCL_IB_DISABLE", "1"},
      {"NCCL_NVLS_ENABLE", "0"},     {"NCCL_MNNVL_ENABLE", "0"}, {"NCCL_RAS_ENABLE", "0"},
      {"NCCL_ALGO", "Ring"},         {"NCCL_PROTO", "Simple"},   {"NCCL_MAX_CTAS", "2"},
      {"NCCL_NET_GDR_LEVEL", "LOC"},
  };
  if (one_node) settings.emplace_back("NCCL_SOCKET_IFNAME", "lo");
  return settings;
}

std::string HostAndProcess() {
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) return StrCat("host-", ::getpid());
  return StrCat(host.data(), "-", ::getpid());
}

EnvironmentSettings MissingSettings(const EnvironmentSettings& settings, const Environment& env) {
  EnvironmentSettings missing;
  for (const auto& setting : settings) {
    if (!env(setting.first).has_value()) missing.push_back(setting);
  }
  return missing;
}

void ApplySettings(const EnvironmentSettings& settings) {
  for (const auto& [name, value] : settings) setenv(name.c_str(), value.c_str(), /*replace=*/1);
}

}  // namespace gaccd
