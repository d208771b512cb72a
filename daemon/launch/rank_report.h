// The report of `gaccd check` for one rank: everything that determines whether the ranks are
// compatible.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/base/environment.h"
#include "collectives/comm/communicator.h"
#include "daemon/launch/device_choice.h"

namespace gaccd {

struct RankReport {
  std::int64_t rank = 0;
  std::string host;
  std::int64_t local_rank = 0;
  std::int64_t local_size = 1;  // ranks on this node

  std::string gaccd;     // "0.1.0 (8486e3ea)"
  std::string build_id;  // of the program: equal only for equal binaries
  std::string mpi;
  std::string onednn;
  std::string cuda;  // loaded version; "not found", or empty in builds without CUDA
  std::string driver;
  std::string cublaslt;
  std::string cudnn;
  std::string attention_problem;  // why cuDNN cannot compute attention; empty: it can
  std::string nccl;

  std::int64_t gpus = 0;  // usable by this process
  std::string gpu;        // of this rank; empty: none
  std::string uuid;
  std::string pci;
  std::int64_t gpu_memory_bytes = 0;
  std::string gpu_problem;  // why this rank cannot compute on a GPU; empty: it can

  std::string cpus;  // usable by this process: "0-7,16"
  std::int64_t cpu_count = 0;
  std::int64_t memlock_bytes = -1;  // RLIMIT_MEMLOCK; -1: unlimited
  std::int64_t descriptors = 0;     // limit of open files
  std::int64_t descriptors_needed = 0;
  std::string cuda_visible_devices;
  std::string slurm_gpus_on_node;   // SLURM_GPUS_ON_NODE; empty: not set
  std::string slurm_cpus_per_task;  // SLURM_CPUS_PER_TASK
};

// Calls visit(name, value) for every field, in this order: "rank", report.rank, ... `Report` is
// RankReport or const RankReport.
template <typename Report, typename Visit>
void ForEachField(Report& report, const Visit& visit) {
  visit("rank", report.rank);
  visit("host", report.host);
  visit("local_rank", report.local_rank);
  visit("local_size", report.local_size);
  visit("gaccd", report.gaccd);
  visit("build_id", report.build_id);
  visit("mpi", report.mpi);
  visit("onednn", report.onednn);
  visit("cuda", report.cuda);
  visit("driver", report.driver);
  visit("cublaslt", report.cublaslt);
  visit("cudnn", report.cudnn);
  visit("attention_problem", report.attention_problem);
  visit("nccl", report.nccl);
  visit("gpus", report.gpus);
  visit("gpu", report.gpu);
  visit("uuid", report.uuid);
  visit("pci", report.pci);
  visit("gpu_memory_bytes", report.gpu_memory_bytes);
  visit("gpu_problem", report.gpu_problem);
  visit("cpus", report.cpus);
  visit("cpu_count", report.cpu_count);
  visit("memlock_bytes", report.memlock_bytes);
  visit("descriptors", report.descriptors);
  visit("descriptors_needed", report.descriptors_needed);
  visit("cuda_visible_devices", report.cuda_visible_devices);
  visit("slurm_gpus_on_node", report.slurm_gpus_on_node);
  visit("slurm_cpus_per_task", report.slurm_cpus_per_task);
}

// Reports on this process. The GPU is the one that training would assign to this rank. GPU
// libraries are loaded for their versions only if requested, as that takes longer than everything
// else.
[[nodiscard]] RankReport MakeRankReport(const Communicator& comm, const GpuProbe& probe,
                                        const Environment& environment,
                                        bool load_gpu_libraries = true);
// Copies the versions of GPU libraries loaded by another rank to `report`.
void CopyGpuLibraries(const RankReport& loaded, RankReport& report);

// Transfer format between ranks: "name=value" lines. Other builds may have other fields: unknown
// ones are skipped, missing ones keep their defaults.
[[nodiscard]] std::string EncodeReport(const RankReport& report);
[[nodiscard]] RankReport DecodeReport(std::string_view text);

// One line of JSON with every field, in the order above.
[[nodiscard]] std::string ReportJson(const RankReport& report);

// Compact lists of numbers for users.

// "0-7,16", and "0-232:8" for 0, 8, ..., 232. REQUIRES: strictly ascending.
[[nodiscard]] std::string NumberList(const std::vector<std::int64_t>& numbers);

// Text table of the reports of all ranks. Pure functions.

// With more ranks than this, ranks that differ only in rank, local rank, host and UUID are joined.
inline constexpr std::size_t kMaxRankLines = 16;

// First the values common to all ranks, one per line; then an aligned table of the rest, sorted by
// rank: one line per rank, or per group of equal ranks ("0-232:8" on "n[1-30]"). reports: by rank,
// not empty. Ends with a newline.
[[nodiscard]] std::string RankTableText(std::span<const RankReport> reports);

// Checks whether ranks are compatible. Pure functions of their reports.

struct RankCompatibility {
  std::vector<std::string> errors;    // prevent a run; each names its ranks
  std::vector<std::string> warnings;  // allow a run, but slowly
};

struct RankCheckOptions {
  bool gpus_matter = true;  // false for --device=cpu
  bool allow_gpu_sharing = false;
};

// errors                                        warnings
//   other build of gaccd                          other model of GPU, other driver
//   other version of MPI, oneDNN, and on GPUs     GPUs that no rank can use
//     of CUDA, cuBLASLt, cuDNN, NCCL              one visible GPU where SLURM gave the node more
//   ranks with and without a usable GPU           more GPUs than ranks on a node
//   fewer GPUs than ranks on a node               fewer cores than SLURM_CPUS_PER_TASK
//   two ranks on one GPU                          limited locked memory, with several nodes
//                                                 cuDNN cannot compute attention
//                                                 GPUs, but no rank can use one
// reports: by rank, not empty. "Other" means different from the most frequent value.
[[nodiscard]] RankCompatibility CheckRanks(std::span<const RankReport> reports,
                                           const RankCheckOptions& options);

}  // namespace gaccd
