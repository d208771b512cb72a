#include <algorithm>
#include <functional>
#include <map>
#include <optional>

#include "collectives/base/strings.h"
#include "collectives/bootstrap/gpus.h"
#include "daemon/device/cuda/dnn_library.h"
#include "daemon/launch/rank_report.h"
#include "slurm/hostlist.h"

namespace gaccd {
namespace {

using Reports = std::span<const RankReport>;
using Value = std::function<std::string(const RankReport&)>;

bool CanUseGpu(const RankReport& report) {
  return !report.gpu.empty() && report.gpu_problem.empty();
}

// "rank 17 on n3", "ranks 16-23 on n3", "ranks 0-239:8 on n[1-30]"
std::string NameRanks(const std::vector<const RankReport*>& ranks) {
  std::vector<std::int64_t> numbers;
  std::vector<std::string> hosts;
  for (const RankReport* report : ranks) {
    numbers.push_back(report->rank);
    hosts.push_back(report->host);
  }
  return StrCat(numbers.size() == 1 ? "rank " : "ranks ", NumberList(numbers), " on ",
                CompressHostlist(hosts));
}

// The ranks of every value. Ranks with an empty value are omitted.
std::map<std::string, std::vector<const RankReport*>> ByValue(Reports reports, const Value& value) {
  std::map<std::string, std::vector<const RankReport*>> groups;
  for (const RankReport& report : reports) {
    if (std::string found = value(report); !found.empty()) groups[found].push_back(&report);
  }
  return groups;
}

// Empty if all have the same value. Otherwise, the most frequent value first:
//   "NCCL differs: 2.28.9 on ranks 0-15 on n[1-2], 2.27.3 on rank 16 on n3"
std::optional<std::string> Differs(Reports reports, std::string_view what, const Value& value) {
  const auto groups = ByValue(reports, value);
  if (groups.size() < 2) return std::nullopt;
  const auto usual =
      std::ranges::max_element(groups, {}, [](const auto& group) { return group.second.size(); });
  std::string text = StrCat(what, " differs: ", usual->first, " on ", NameRanks(usual->second));
  for (auto group = groups.begin(); group != groups.end(); ++group) {
    if (group == usual) continue;
    text += StrCat(", ", group->first, " on ", NameRanks(group->second));
  }
  return text;
}

void Add(std::vector<std::string>& list, std::optional<std::string> text) {
  if (text) list.push_back(*std::move(text));
}

void CheckVersions(Reports reports, bool on_gpus, RankCompatibility& result) {
  const auto differs = [&](std::string_view what, std::string RankReport::*field) {
    return Differs(reports, what, [field](const RankReport& report) { return report.*field; });
  };
  // Revision and build id: two builds of one revision differ too.
  Add(result.errors, Differs(reports, "gaccd", [](const RankReport& report) {
        return StrCat(report.gaccd, ", build ", report.build_id.substr(0, 12));
      }));
  Add(result.errors, differs("MPI", &RankReport::mpi));
  Add(result.errors, differs("oneDNN", &RankReport::onednn));
  if (!on_gpus) return;
  Add(result.errors, differs("CUDA runtime", &RankReport::cuda));
  Add(result.errors, differs("cuBLASLt", &RankReport::cublaslt));
  Add(result.errors, differs("cuDNN", &RankReport::cudnn));
  Add(result.errors, differs("NCCL", &RankReport::nccl));
  Add(result.warnings, differs("CUDA driver", &RankReport::driver));
  Add(result.warnings, differs("model of GPU", &RankReport::gpu));
}

// Error if only some ranks can use a GPU, with each reason once.
void CheckMixture(Reports reports, RankCompatibility& result) {
  const auto why = ByValue(reports, [](const RankReport& report) {
    if (CanUseGpu(report)) return std::string();
    return report.gpu_problem.empty() ? "it sees no GPU" : report.gpu_problem;
  });
  if (why.empty()) return;
  const auto usable = std::ranges::count_if(reports, CanUseGpu);
  std::string reasons;
  for (const auto& [reason, ranks] : why) {
    reasons += StrCat(reasons.empty() ? "" : "; ", NameRanks(ranks), ": ", reason);
  }
  if (usable > 0) {
    result.errors.push_back(StrCat("ranks with and without a usable GPU: expected all or none of ",
                                   reports.size(), ", found ", usable, "; ", reasons));
    return;
  }
  const bool seen = std::ranges::any_of(reports, [](const auto& r) { return !r.gpu.empty(); });
  if (seen) result.warnings.push_back("the GPUs will not be used; " + reasons);
}

// Errors for nodes with fewer GPUs than ranks, or one GPU for several ranks.
void CheckSharing(Reports reports, RankCompatibility& result) {
  for (const auto& [host, ranks] : ByValue(reports, [](const RankReport& r) { return r.host; })) {
    std::map<std::string, std::vector<const RankReport*>> users;
    std::int64_t visible = 0;
    for (const RankReport* report : ranks) {
      visible = std::max(visible, report->gpus);
      if (!report->uuid.empty()) users[report->uuid].push_back(report);
    }
    // All visible GPUs are in use, and there are more ranks.
    if (std::ssize(users) == visible && visible < std::ssize(ranks) && visible > 0) {
      result.errors.push_back(StrCat("fewer GPUs than tasks on ", host, ": expected ", ranks.size(),
                                     ", found ", visible));
      continue;
    }
    for (const auto& [uuid, sharing] : users) {
      if (sharing.size() < 2) continue;
      result.errors.push_back(StrCat(NameRanks(sharing), " have one GPU, ", uuid,
                                     ": expected one for each, or --allow-gpu-sharing"));
    }
  }
}

// Adds "<ranks>: <text>" for the ranks for which `bad` returns a text, once per text.
void Warn(Reports reports, const Value& bad, RankCompatibility& result) {
  for (const auto& [text, ranks] : ByValue(reports, bad)) {
    result.warnings.push_back(StrCat(NameRanks(ranks), ": ", text));
  }
}

std::string BoundGpu(const RankReport& report) {
  const auto on_node = ToNumber<std::int64_t>(report.slurm_gpus_on_node);
  if (report.gpus != 1 || !on_node || *on_node <= 1) return {};
  return StrCat(
      "sees one GPU of the ", *on_node,
      " that SLURM gave the node: GPUs bound to tasks cannot copy to each other directly; "
      "use --gpus-per-node, without --gpus-per-task and --gpu-bind");
}

std::string UnassignedGpus(const RankReport& report) {
  return CanUseGpu(report) ? UnusedGpus(report.gpus, report.local_size) : std::string();
}

std::string SlowAttention(const RankReport& report) {
  if (report.attention_problem.empty()) return {};
  return StrCat(kOwnAttention, report.attention_problem,
                "; convolutions are slower, too; other models lose nothing");
}

std::string FewCpus(const RankReport& report) {
  const auto asked = ToNumber<std::int64_t>(report.slurm_cpus_per_task);
  if (!asked || report.cpu_count >= *asked) return {};
  return StrCat("may run on ", Counted(report.cpu_count, "core"),
                ", expected SLURM_CPUS_PER_TASK=", *asked,
                ": export SRUN_CPUS_PER_TASK: srun 22.05 to 23.02 does not inherit it");
}

std::string LimitedMemlock(const RankReport& report) {
  if (report.memlock_bytes < 0) return {};
  return StrCat("may lock ", report.memlock_bytes,
                " bytes of memory, expected unlimited: the network may be slow or refuse; set "
                "LimitMEMLOCK=infinity in slurmd.service");
}

}  // namespace

RankCompatibility CheckRanks(Reports reports, const RankCheckOptions& options) {
  RankCompatibility result;
  const bool on_gpus = options.gpus_matter && std::ranges::any_of(reports, CanUseGpu);
  CheckVersions(reports, on_gpus, result);
  if (options.gpus_matter) {
    CheckMixture(reports, result);
    if (!options.allow_gpu_sharing) CheckSharing(reports, result);
    Warn(reports, BoundGpu, result);
    Warn(reports, UnassignedGpus, result);
  }
  if (on_gpus) Warn(reports, SlowAttention, result);
  Warn(reports, FewCpus, result);
  const bool network = ByValue(reports, [](const RankReport& r) { return r.host; }).size() > 1;
  if (network) Warn(reports, LimitedMemlock, result);
  return result;
}

}  // namespace gaccd
