// The properties of a cluster, from the output of scontrol, srun and sinfo. Pure; thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gaccd {

// The answers; empty: there was none.
struct SiteAnswers {
  std::string partitions;  // scontrol --oneliner show partition
  std::string mpi_types;   // srun --mpi=list
  std::string config;      // scontrol show config
};

// What a job should know beforehand, a line each: partitions (of a list apart by commas; empty: the
// default one) that are not there or do not put a preempted job back to the queue, and an --mpi
// that the cluster lacks.
[[nodiscard]] std::vector<std::string> SiteWarnings(const SiteAnswers& answers,
                                                    std::string_view partitions,
                                                    std::string_view mpi);

// What a job asks for; nothing: it does not say.
struct JobShape {
  std::optional<std::int64_t> nodes;
  std::optional<std::int64_t> time_limit_s;
  std::optional<std::int64_t> memory_mib;  // of a node
};

// Why the job can never start, a line for each of these partitions; empty where one of them can
// start it, or there was no answer. Warnings only: a QOS may allow more than its partition does.
[[nodiscard]] std::vector<std::string> StartWarnings(const SiteAnswers& answers,
                                                     std::string_view partitions,
                                                     const JobShape& job);

// How long a requeued job waits before it may start again, and what a job may do about that.
struct RequeueRules {
  std::int64_t delay_s = 120;
  std::string delay_from;                  // "AuthInfo=cred_expire"
  bool may_expedite = false;               // sbatch --requeue=expedite
  std::string node_timeout;                // SlurmdTimeout: "300 sec"
  [[nodiscard]] std::string Text() const;  // one line, for people
  friend bool operator==(const RequeueRules&, const RequeueRules&) = default;
};
// Nothing where there was no answer.
[[nodiscard]] std::optional<RequeueRules> RequeueRulesOf(const SiteAnswers& answers);

// The time limit in seconds of a job that names none, in the partition of these that gives the
// shortest one: its DefaultTime, else its MaxTime. Nothing where there is no limit, or no answer.
[[nodiscard]] std::optional<std::int64_t> TimeLimitOf(const SiteAnswers& answers,
                                                      std::string_view partitions);

}  // namespace gaccd
