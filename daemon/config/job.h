// The job as plain, validated values. Made from job text and flags by job_text.h. Its structs are
// generated from proto/job.proto by make_structs.cc, with meaning, range and default of every
// field, in <build>/daemon/config/job_spec.h.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/config/job_spec.h"

namespace gaccd {

struct Job : JobSpec {
  std::string folder;  // folder of the job file, for relative paths; empty: none

  // Which of these fields are set in the job text; the others have their defaults.
  struct Given {
    bool micro = false;
    bool rounding = false;
    bool lr_rule = false;
  } given = {};
};

enum class LossKind : std::uint8_t {
  kSoftmaxCrossEntropy,
  kMeanSquaredError,
  kContrastive,
  kOutput
};
[[nodiscard]] LossKind GetLossKind(const LossSpec& loss);
[[nodiscard]] std::string_view Name(LossKind loss);  // as in a job

// The numerical precision of all ranks.
struct Numerics {
  Precision precision = Precision::kF32;
  bool tf32 = false;
  bool deterministic = false;
};
[[nodiscard]] Numerics GetNumerics(const JobSpec& job);

// Names of a job's metrics, and how their values compare: one table with a row for every metric in
// proto/job.proto.

// Whether smaller or larger values are better.
enum class Better : std::uint8_t { kSmaller, kLarger };
[[nodiscard]] constexpr bool IsBetter(Better better, double value, double than) {
  return better == Better::kSmaller ? value < than : value > than;
}

enum class MetricInput : std::uint8_t { kLabels, kTargets };

struct MetricKind {
  // No member has a default: a metric without a direction does not compile.
  MetricKind(std::string name_in, Better better_in, MetricInput input_in)
      : name(std::move(name_in)), better(better_in), input(input_in) {}

  std::string name;  // name in events and logs, and in evaluation.metric: "accuracy", "top_5"
  Better better;
  MetricInput input;
};

[[nodiscard]] MetricKind DescribeMetric(const MetricSpec& spec);
// One metric of each kind, with default fields, in the order of proto/job.proto.
[[nodiscard]] std::vector<MetricSpec> AllMetrics();

// The loss of an evaluation, which is always computed.
inline constexpr std::string_view kLossName = "loss";

// Differences between a job and the saved one, by their meaning for a run that resumes: the option
// `resume` of each field in proto/job.proto. Text for users: "optimizer.lr: 0.1 -> 0.05; epochs: 2
// -> 4". Empty: no differences.
struct JobChanges {
  std::string other_run;  // differences of fields that are SAME
  std::string reported;   // differences of fields that are REPORTED
};

// Paths of the same file are equal. Names of classes or columns are equal if `was` has none.
[[nodiscard]] JobChanges CompareJobs(Job was, const Job& now);

}  // namespace gaccd
