#include "daemon/launch/device_choice.h"

#include <algorithm>
#include <cctype>
#include <set>
#include <utility>

#include "collectives/base/strings.h"
#include "collectives/bootstrap/agree.h"
#include "daemon/autograd/function.h"
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

DeviceChoice CpuChoice(const std::string& reason) {
  return {.device = Device::kCpu, .gpu = {}, .text = StrCat("device cpu: ", reason)};
}

struct Peak {
  std::string_view part_of_name;  // at the end of a word; the first match counts
  double tera_16_bit;             // half of it with TF32
  double tera_f32;
};

constexpr Peak kPeaks[] = {
    {"GB200", 2500, 80},   {"B200", 2250, 75},     {"GH200", 989.4, 66.9}, {"H200 NVL", 0, 0},
    {"H200", 989.4, 66.9}, {"H100 PCIe", 756, 51}, {"H100 NVL", 835, 60},  {"H100", 989.4, 66.9},
    {"A100", 312, 19.5},   {"A30", 165, 10.3},     {"L40S", 362, 91.6},    {"L40", 181, 90.5},
    {"L4", 121, 30.3},
};

// "A100" is not in "RTX A1000".
bool ContainsWords(std::string_view name, std::string_view words) {
  const std::size_t begin = name.find(words);
  if (begin == std::string_view::npos) return false;
  const std::string_view rest = name.substr(begin + words.size());
  return rest.empty() || std::isalnum(static_cast<unsigned char>(rest.front())) == 0;
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
  if (wanted == Device::kCpu) return CpuChoice("asked for");
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
  if (usable == 0) return CpuChoice(CommonProblem(ranks));
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
    GACCD_ASSIGN_OR_RETURN(choice.gpu, AssignGpu(over, mine.gpus, allow_sharing));
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

Result<DnnWork> FindDnnWork(const Job& job) {
  GACCD_ASSIGN_OR_RETURN(const Model model, Model::MakeWithoutData(job.model));
  GACCD_ASSIGN_OR_RETURN(const TrainingGraph training, model.RecordTraining({1}));
  const auto has = [&](std::string_view function) {
    return std::ranges::any_of(training.graph.nodes(),
                               [&](const Node& node) { return node.function->name() == function; });
  };
  return DnnWork{.attention = has("attention"), .convolution = has("conv2d")};
}

Result<DnnChoice> ChooseDnn(Communicator& over, const DnnWork& work, Precision precision,
                            const Result<DnnFactory>& mine) {
  const char* const what = !work.attention    ? "convolutions"
                           : work.convolution ? "attention and convolutions"
                                              : "attention";
  if (precision == Precision::kF32) {
    return DnnChoice{.text = StrCat(what, ": gaccd's own kernels, as in f32 always")};
  }
  const std::string why_not = mine.ok() ? "" : mine.status().message();
  GACCD_ASSIGN_OR_RETURN(const std::vector<std::string> reasons, GatherText(over, why_not));
  const auto first = std::ranges::find_if(reasons, [](const auto& r) { return !r.empty(); });
  if (first == reasons.end()) return DnnChoice{.library = *mine, .text = StrCat(what, ": cuDNN")};
  const auto rank = static_cast<std::size_t>(first - reasons.begin());
  const auto missing = std::ranges::count_if(reasons, [](const auto& r) { return !r.empty(); });
  return DnnChoice{.text = StrCat(work.attention ? kOwnAttention : kOwnConvolution, missing, " of ",
                                  reasons.size(), " ranks cannot use cuDNN; rank ", rank, " on ",
                                  over.topology().hosts[rank], ": ", *first),
                   .slow = true};
}

Result<std::string> CheckBf16OnCpus(Communicator& over, CpuBf16 mine, bool allow_emulation) {
  GACCD_ASSIGN_OR_RETURN(const std::vector<std::string> found, GatherText(over, Name(mine)));
  const auto refused = [&](const std::string& name) {
    return name == Name(CpuBf16::kNone) || (!allow_emulation && name == Name(CpuBf16::kEmulated));
  };
  if (const auto first = std::ranges::find_if(found, refused); first != found.end()) {
    const auto rank = static_cast<std::size_t>(first - found.begin());
    const bool can_be_emulated = *first == Name(CpuBf16::kEmulated);
    return Status(
        ErrorKind::kConfig,
        StrCat("precision bf16: expected AVX512_BF16 or AMX on the CPU of every rank, ",
               std::ranges::count_if(found, refused), " of ", found.size(), " have neither; rank ",
               rank, " on ", over.topology().hosts[rank], " has ", *first,
               can_be_emulated ? ": --allow-emulation computes it there, slower than f32" : ""));
  }
  std::string text;
  for (const std::string& name : std::set<std::string>(found.begin(), found.end())) {
    const bool emulated = name == Name(CpuBf16::kEmulated);
    text += StrCat(text.empty() ? "products in bf16 by " : " and ", emulated ? "emulation" : name);
  }
  return text;
}

double PeakFlops(std::string_view gpu_name, const Numerics& numerics) {
  if (gpu_name.find("MIG") != std::string_view::npos) return 0;
  for (const Peak& peak : kPeaks) {
    if (!ContainsWords(gpu_name, peak.part_of_name)) continue;
    if (numerics.precision != Precision::kF32) return peak.tera_16_bit * 1e12;
    return (numerics.tf32 ? peak.tera_16_bit / 2 : peak.tera_f32) * 1e12;
  }
  return 0;
}

}  // namespace gaccd
