#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <type_traits>

#include "collectives/base/strings.h"
#include "collectives/bootstrap/agree.h"
#include "collectives/bootstrap/gpus.h"

namespace gaccd {
namespace {

// Data sent by each rank to all others as bytes: all ranks run the same binary.
struct GpuHello {
  std::int64_t device = 0;
  std::array<char, 64> uuid{};
  std::array<char, 128> name{};
};
static_assert(std::is_trivially_copyable_v<GpuHello>);

template <std::size_t kSize>
void Copy(const std::string& from, std::array<char, kSize>* to) {
  std::memcpy(to->data(), from.data(), std::min(from.size(), kSize - 1));
}

GpuHello MakeHello(const GpuFacts& gpu) {
  GpuHello hello;
  hello.device = gpu.device;
  Copy(gpu.uuid, &hello.uuid);
  Copy(gpu.name, &hello.name);
  return hello;
}

}  // namespace

Result<GpuFacts> ChooseGpu(std::span<const GpuFacts> gpus, const Topology& topology,
                           bool allow_sharing) {
  if (gpus.size() == 1) return gpus.front();
  const auto local = static_cast<std::size_t>(topology.local_rank);
  if (local < gpus.size()) return gpus[local];
  if (allow_sharing) return gpus[local % gpus.size()];
  return Status(ErrorKind::kConfig,
                StrCat("fewer GPUs than ranks: ", gpus.size(), " GPUs for ", topology.local_size,
                       " ranks of this node; start one rank per GPU"));
}

Status CheckDistinctGpus(std::span<const GpuFacts> gpus, const Topology& topology) {
  std::map<std::string, std::size_t> owner;
  for (std::size_t r = 0; r < gpus.size(); ++r) {
    const auto [first, is_new] = owner.try_emplace(gpus[r].uuid, r);
    if (is_new) continue;
    return {ErrorKind::kConfig,
            StrCat(RankOnHost(static_cast<int>(first->second), topology.hosts), " and ",
                   RankOnHost(static_cast<int>(r), topology.hosts), " both use GPU ",
                   gpus[r].device, " (", gpus[r].name, ", ", gpus[r].uuid,
                   "); start one rank per GPU, or allow it for a test with --allow-gpu-sharing")};
  }
  return Status::Ok();
}

std::string UnusedGpus(std::int64_t gpus, std::int64_t local_size) {
  if (gpus <= 1 || gpus <= local_size) return {};
  return StrCat(gpus, " GPUs for ", Counted(local_size, "rank"),
                " of this node, the others are not used: start one rank per GPU (in SLURM "
                "--ntasks-per-node=",
                gpus, ", elsewhere --local-ranks=", gpus, "), or ask for fewer GPUs");
}

Result<GpuFacts> AssignGpu(Communicator& over, std::span<const GpuFacts> gpus, bool allow_sharing) {
  const Topology& topology = over.topology();
  const Result<GpuFacts> chosen = ChooseGpu(gpus, topology, allow_sharing);
  GACCD_RETURN_IF_ERROR(AgreeOn(over, chosen.status()).status);
  const GpuHello mine = MakeHello(*chosen);
  const auto ranks = static_cast<std::size_t>(over.size());
  std::vector<GpuHello> hellos(ranks);
  const std::vector<std::int64_t> counts(ranks, sizeof(GpuHello));
  GACCD_RETURN_IF_ERROR(
      over.AllGather({&mine, sizeof(GpuHello), DType::kU8, MemoryKind::kHost}, counts,
                     {hellos.data(), ranks * sizeof(GpuHello), DType::kU8, MemoryKind::kHost}));
  if (allow_sharing) return chosen;
  std::vector<GpuFacts> of_ranks(ranks);
  for (std::size_t r = 0; r < ranks; ++r) {
    of_ranks[r].device = static_cast<int>(hellos[r].device);
    of_ranks[r].uuid = hellos[r].uuid.data();
    of_ranks[r].name = hellos[r].name.data();
  }
  GACCD_RETURN_IF_ERROR(CheckDistinctGpus(of_ranks, topology));
  return chosen;
}

}  // namespace gaccd
