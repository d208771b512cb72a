// The properties of a cluster, from the output of scontrol, srun and sinfo. Pure; thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gaccd {

// Outputs of the commands; empty: not available.
struct SiteOutputs {
  std::string partitions;  // scontrol --oneliner show partition
  std::string mpi_types;   // srun --mpi=list
  std::string config;      // scontrol show config
};

// Warnings, one per line: partitions (a comma-separated list; empty: the default one) that do not
// exist or do not requeue preempted jobs, and an --mpi type that the cluster lacks.
[[nodiscard]] std::vector<std::string> SiteWarnings(const SiteOutputs& outputs,
                                                    std::string_view partitions,
                                                    std::string_view mpi);

// The resources of a job; empty: not specified.
struct JobShape {
  std::optional<std::int64_t> nodes;
  std::optional<std::int64_t> time_limit_s;
  std::optional<std::int64_t> memory_mib;  // per node
};

// Why the job can never start, one line per partition; empty if one of them can start it, or if the
// output is not available. Only warnings: a QOS may allow more than its partition.
[[nodiscard]] std::vector<std::string> StartWarnings(const SiteOutputs& outputs,
                                                     std::string_view partitions,
                                                     const JobShape& job);

// How long a requeued job waits before it may start again, and how a job can shorten that.
struct RequeueRules {
  std::int64_t delay_s = 120;
  std::string delay_from;                  // "AuthInfo=cred_expire"
  bool may_expedite = false;               // sbatch --requeue=expedite
  std::string node_timeout;                // SlurmdTimeout: "300 sec"
  [[nodiscard]] std::string Text() const;  // one line for users
  friend bool operator==(const RequeueRules&, const RequeueRules&) = default;
};
// Empty if the output is not available.
[[nodiscard]] std::optional<RequeueRules> ReadRequeueRules(const SiteOutputs& outputs);

// The time limit in seconds of a job that sets none: the shortest of these partitions, each its
// DefaultTime, or otherwise its MaxTime. Empty if there is no limit or no output.
[[nodiscard]] std::optional<std::int64_t> DefaultTimeLimit(const SiteOutputs& outputs,
                                                           std::string_view partitions);

}  // namespace gaccd
