// What a cluster says of itself, in the words of scontrol, srun and sinfo. Pure; thread-safe.
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
};

// What a job should know beforehand, a line each: partitions (of a list apart by commas; empty: the
// default one) that are not there or do not put a preempted job back to the queue, and an --mpi
// that the cluster lacks.
[[nodiscard]] std::vector<std::string> SiteWarnings(const SiteAnswers& answers,
                                                    std::string_view partitions,
                                                    std::string_view mpi);

// The time limit in seconds of a job that names none, in the partition of these that gives the
// shortest one: its DefaultTime, else its MaxTime. Nothing where there is no limit, or no answer.
[[nodiscard]] std::optional<std::int64_t> TimeLimitOf(const SiteAnswers& answers,
                                                      std::string_view partitions);

}  // namespace gaccd
