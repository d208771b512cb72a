#include "daemon/launch/device_choice.h"

#include <algorithm>
#include <utility>

#include "collectives/base/strings.h"
#include "collectives/bootstrap/gpu_choice.h"
#include "collectives/bootstrap/share_text.h"
#include "daemon/launch/gpu_libraries.h"
#include "daemon/ops/cuda_kernels.h"
#include "daemon/replica/model.h"

namespace gaccd {
namespace {

// More ranks than this are only counted.
constexpr std::size_t kMaxNames = 8;
// gaccd contains machine code from sm_80 (A100) on.
constexpr int kMinCapability = 80;

bool Usable(const RankGpu& rank) { return rank.problem.empty(); }

// "rank 17 on n3 (no NVIDIA driver), rank 18 on n3 (...), and 3 more"
std::string NameRanks(std::span<const RankGpu> ranks, bool usable) {
  std::string text;
  std::size_t named = 0;
  std::size_t others = 0;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    if (Usable(ranks[r]) != usable) continue;
    if (named == kMaxNames) {
      ++others;
      continue;
    }
    text += StrCat(named++ == 0 ? "" : ", ", "rank ", r, " on ", ranks[r].host, " (",
                   usable ? ranks[r].name : ranks[r].problem, ")");
  }
  return others == 0 ? text : StrCat(text, ", and ", others, " more");
}

// "NVIDIA H200 on 240 ranks", or with several models "NVIDIA A100 on 8 ranks, NVIDIA H200 on ..."
std::string CountModels(std::span<const RankGpu> ranks) {
  std::vector<std::string> names;
  for (const RankGpu& rank : ranks) names.push_back(rank.name);
  std::ranges::sort(names);
  std::string text;
  for (auto at = names.begin(); at != names.end();) {
    const auto next = std::upper_bound(at, names.end(), *at);
    const auto count = next - at;
    text += StrCat(text.empty() ? "" : ", ", *at, " on ", Counted(count, "rank"));
    at = next;
  }
  return text;
}

// Why no rank has a GPU; often the same reason for all.
std::string CommonProblem(std::span<const RankGpu> ranks) {
  const std::string& first = ranks[0].problem;
  const bool same = std::ranges::all_of(ranks, [&](const auto& r) { return r.problem == first; });
  return same ? first : StrCat("no rank has a usable GPU: ", NameRanks(ranks, false));
}

DeviceChoice OnCpu(const std::string& reason) {
  return {.device = Device::kCpu, .gpu = {}, .text = StrCat("device cpu: ", reason)};
}

}  // namespace

GpuProbe ProbeGpus(int world) {
  GpuProbe probe;
  auto gpus = FindGpus();
  if (!gpus.ok()) {
    probe.problem = gpus.status().message();
    return probe;
  }
  probe.gpus = *std::move(gpus);
  for (const GpuFacts& gpu : probe.gpus) {
    if (gpu.compute_capability < kMinCapability) {
      probe.problem = StrCat(gpu.name, " ", gpu.pci, ": expected compute capability ",
                             kMinCapability, " or more, found ", gpu.compute_capability);
      return probe;
    }
  }
  const Status libraries = CheckGpuLibraries(world > 1);
  if (!libraries.ok()) probe.problem = libraries.message();
  return probe;
}

Result<DeviceChoice> DecideDevice(Device wanted, std::span<const RankGpu> ranks) {
  if (wanted == Device::kCpu) return OnCpu("asked for");
  const auto usable = static_cast<std::size_t>(std::ranges::count_if(ranks, Usable));
  if (usable == ranks.size()) {
    return DeviceChoice{
        .device = Device::kCuda, .gpu = {}, .text = StrCat("device cuda: ", CountModels(ranks))};
  }
  if (wanted == Device::kCuda) {
    return Status(
        ErrorKind::kConfig,
        StrCat("device cuda: expected a usable GPU on every rank, found none on ",
               ranks.size() - usable, " of ", ranks.size(), ": ", NameRanks(ranks, false)));
  }
  if (usable == 0) return OnCpu(CommonProblem(ranks));
  const bool name_usable = usable < ranks.size() - usable;
  return Status(
      ErrorKind::kConfig,
      StrCat("device auto: expected a usable GPU on every rank or on none, found one on ", usable,
             " of ", ranks.size(), " ranks; ", name_usable ? "with" : "without", ": ",
             NameRanks(ranks, name_usable), ". Leave these nodes out, or give --device=cpu"));
}

Result<DeviceChoice> ChooseDevice(Communicator& over, Device wanted, bool allow_sharing,
                                  const GpuProbe& mine) {
  if (wanted == Device::kCpu) return DecideDevice(wanted, {});
  const std::string name = mine.gpus.empty() ? "" : mine.gpus[0].name;
  GACCD_ASSIGN_OR_RETURN(const auto names, GatherText(over, name));
  GACCD_ASSIGN_OR_RETURN(const auto problems, GatherText(over, mine.problem));
  std::vector<RankGpu> ranks;
  for (std::size_t r = 0; r < names.size(); ++r) {
    ranks.push_back({over.topology().hosts[r], names[r], problems[r]});
  }
  GACCD_ASSIGN_OR_RETURN(DeviceChoice choice, DecideDevice(wanted, ranks));
  if (choice.device == Device::kCuda) {
    GACCD_ASSIGN_OR_RETURN(choice.gpu, AssignGpu(over, FindGpus(), allow_sharing));
    choice.warning = UnusedGpus(std::ssize(mine.gpus), over.topology().local_size);
  }
  return choice;
}

Status CheckModelOnGpu(const Job& job) {
  GACCD_ASSIGN_OR_RETURN(const Model model, Model::MakeWithoutData(job.model));
  GACCD_ASSIGN_OR_RETURN(TrainingGraph training, model.RecordTraining({1}));
  FuseForCuda(training.graph);
  GACCD_RETURN_IF_ERROR(CheckCudaKernels(training.graph));
  if (model.contrastive() || model.has_collectives()) return Status::Ok();  // without evaluation
  GACCD_ASSIGN_OR_RETURN(EvaluationGraph evaluation, model.RecordEvaluation({1}));
  FuseForCuda(evaluation.graph);
  return CheckCudaKernels(evaluation.graph);
}

}  // namespace gaccd
