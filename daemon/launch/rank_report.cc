#include "daemon/launch/rank_report.h"

#include <sys/resource.h>

#include <algorithm>
#include <charconv>
#include <type_traits>

#include "collectives/base/strings.h"
#include "collectives/base/thread.h"
#include "collectives/bootstrap/mpi_session.h"
#include "daemon/config/flat_json.h"
#include "daemon/config/help.h"
#include "daemon/config/revision.h"
#include "daemon/device/cpu/onednn.h"
#include "daemon/launch/launch.h"

namespace gaccd {

namespace {

void FillCpus(RankReport& report) {
  const auto cores = AllowedCores();
  if (!cores.ok()) return;
  const std::vector<std::int64_t> cpus = CoreNumbers(*cores);
  report.cpu_count = std::ssize(cpus);
  report.cpus = NumberList(cpus);
}

void FillMemlock(RankReport& report) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
  report.memlock_bytes = static_cast<std::int64_t>(limit.rlim_cur);
}

void FillLibraries(RankReport& report) {
  report.gaccd = StrCat(GaccdVersion(), " (", GaccdRevision(), ")");
  report.build_id = BuildId();
  report.mpi = MpiVersion();
  report.onednn = OneDnnVersion();
}

void FillGpuLibraries(RankReport& report) {
  for (const LibraryVersions& library : GpuLibraries()) {
    const std::string text = library.loaded ? ToText(*library.loaded) : "not found";
    if (library.name == "CUDA runtime") report.cuda = text;
    if (library.name == "CUDA driver") report.driver = text;
    if (library.name == "cuBLASLt") report.cublaslt = text;
    if (library.name == "cuDNN") {
      report.cudnn = text;
      const Status attention = CheckDnnLibrary();
      if (!attention.ok()) report.attention_problem = attention.message();
    }
    if (library.name == "NCCL") report.nccl = text;
  }
}

void FillGpu(const GpuProbe& probe, RankReport& report) {
  report.gpus = std::ssize(probe.gpus);
  report.gpu_problem = probe.problem;
  if (probe.gpus.empty()) return;
  // With fewer GPUs than ranks, two ranks get the same one, which the verdict then reports.
  const GpuFacts& gpu = probe.gpus[static_cast<std::size_t>(report.local_rank) % probe.gpus.size()];
  report.gpu = gpu.name;
  report.uuid = gpu.uuid;
  report.pci = gpu.pci;
  report.gpu_memory_bytes = gpu.memory_bytes;
}

// Prevents values from looking like two lines or controlling a terminal.
std::string OneLine(std::string text) {
  std::ranges::replace(text, '\n', ' ');
  return Printable(text);
}

void Read(std::string_view text, std::string& value) { value = text; }
void Read(std::string_view text, std::int64_t& value) {
  std::from_chars(text.data(), text.data() + text.size(), value);
}

}  // namespace

RankReport MakeRankReport(const Communicator& comm, const GpuProbe& probe,
                          const Environment& environment, bool load_gpu_libraries) {
  RankReport report;
  report.rank = comm.rank();
  report.host = comm.topology().hosts[static_cast<std::size_t>(comm.rank())];
  report.local_rank = comm.topology().local_rank;
  report.local_size = comm.topology().local_size;
  FillLibraries(report);
  if (load_gpu_libraries) FillGpuLibraries(report);
  FillGpu(probe, report);
  FillCpus(report);
  FillMemlock(report);
  report.descriptors = RaiseDescriptorLimit();
  report.descriptors_needed = DescriptorsNeeded(comm.size());
  report.cuda_visible_devices = environment("CUDA_VISIBLE_DEVICES").value_or("");
  report.slurm_gpus_on_node = environment("SLURM_GPUS_ON_NODE").value_or("");
  report.slurm_cpus_per_task = environment("SLURM_CPUS_PER_TASK").value_or("");
  return report;
}

void CopyGpuLibraries(const RankReport& loaded, RankReport& report) {
  for (const auto field : {&RankReport::cuda, &RankReport::driver, &RankReport::cublaslt,
                           &RankReport::cudnn, &RankReport::attention_problem, &RankReport::nccl}) {
    report.*field = loaded.*field;
  }
}

std::string EncodeReport(const RankReport& report) {
  std::string text;
  ForEachField(report, [&](std::string_view name, const auto& value) {
    text += StrCat(name, "=", OneLine(StrCat(value)), "\n");
  });
  return text;
}

RankReport DecodeReport(std::string_view text) {
  RankReport report;
  for (const std::string& line : Split(text, '\n')) {
    const std::size_t equals = line.find('=');
    if (equals == std::string::npos) continue;
    ForEachField(report, [&](std::string_view name, auto& value) {
      if (name == line.substr(0, equals)) Read(line.substr(equals + 1), value);
    });
  }
  return report;
}

std::string ReportJson(const RankReport& report) {
  std::string json = "{";
  ForEachField(report, [&](std::string_view name, const auto& value) {
    json += StrCat(json.size() > 1 ? "," : "", JsonString(name), ":");
    if constexpr (std::is_same_v<std::decay_t<decltype(value)>, std::string>) {
      json += JsonString(value);
    } else {
      json += StrCat(value);
    }
  });
  return json + "}";
}

namespace {

// The end of the longest arithmetic sequence that starts at `begin`.
std::size_t FindSequenceEnd(const std::vector<std::int64_t>& numbers, std::size_t begin) {
  std::size_t end = begin + 1;
  while (end < numbers.size() && (end == begin + 1 || numbers[end] - numbers[end - 1] ==
                                                          numbers[begin + 1] - numbers[begin])) {
    ++end;
  }
  return end;
}

}  // namespace

std::string NumberList(const std::vector<std::int64_t>& numbers) {
  std::string text;
  for (std::size_t begin = 0; begin < numbers.size();) {
    std::size_t end = FindSequenceEnd(numbers, begin);
    const bool neighbours = end > begin + 1 && numbers[begin + 1] == numbers[begin] + 1;
    // Two numbers far apart are not a sequence; the second may begin one.
    if (!neighbours && end - begin < 3) end = begin + 1;
    text += StrCat(text.empty() ? "" : ",", numbers[begin]);
    if (end > begin + 1) text += StrCat("-", numbers[end - 1]);
    if (end > begin + 1 && !neighbours) text += StrCat(":", numbers[begin + 1] - numbers[begin]);
    begin = end;
  }
  return text;
}

}  // namespace gaccd
