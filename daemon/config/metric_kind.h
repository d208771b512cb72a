// What a job's metrics are called, and how their values compare: one table, which every metric of
// proto/job.proto must have a line in.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/config/job.h"

namespace gaccd {

// Which of two values is the better one.
enum class Better : std::uint8_t { kSmaller, kLarger };
[[nodiscard]] constexpr bool IsBetter(Better better, double value, double than) {
  return better == Better::kSmaller ? value < than : value > than;
}

enum class MetricInput : std::uint8_t { kLabels, kTargets };

struct MetricKind {
  // No member has a default: a metric without a direction does not compile.
  MetricKind(std::string name_in, Better better_in, MetricInput input_in)
      : name(std::move(name_in)), better(better_in), input(input_in) {}

  std::string name;  // in events and logs, and of evaluation.metric: "accuracy", "top_5"
  Better better;
  MetricInput input;
};

[[nodiscard]] MetricKind DescribeMetric(const MetricSpec& spec);
// One of each kind, with the defaults of its fields, in the order of proto/job.proto.
[[nodiscard]] std::vector<MetricSpec> AllMetrics();

// The loss of an evaluation, which is measured in any case.
inline constexpr std::string_view kLossName = "loss";

}  // namespace gaccd
