// Names of a job's metrics, and how their values compare: one table with a row for every metric in
// proto/job.proto.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/config/job.h"

namespace gaccd {

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

}  // namespace gaccd
