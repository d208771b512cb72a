// Text of a plan for users on a login node: at most 40 lines of 80 columns.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "daemon/plan/micro_batch.h"
#include "daemon/plan/plan.h"

namespace gaccd {

// Where an input of the plan came from; the text marks all origins except kGiven.
enum class Origin : std::uint8_t { kGiven, kDefault, kJob, kMemory };

struct PlanOrigins {
  Origin nodes = Origin::kGiven;
  Origin gpus_per_node = Origin::kGiven;
  Origin micro_batch = Origin::kGiven;
  Origin target_batch = Origin::kGiven;
  Origin rounding = Origin::kGiven;
  Origin lr_rule = Origin::kGiven;
};

// The name of ranks in the text: GPUs only if they are known to be GPUs.
enum class RankKind : std::uint8_t { kRank, kGpu };

// Ends with a newline. Lines are at most 80 columns for counts of up to 7 digits.
[[nodiscard]] std::string PlanText(const Plan& plan, const PlanOrigins& origins,
                                   RankKind kind = RankKind::kRank);

// One line: "  name           value
// "; an empty name continues the previous line.
[[nodiscard]] std::string PlanField(std::string_view name, const std::string& value);

// The micro-batches of one rank: "13", "7 + 6", "3 x 8", "3 x 7 + 2 x 6".
[[nodiscard]] std::string MicroBatchText(std::int64_t load, std::int64_t accum_steps);

// Text table of the micro-batches considered by --micro-batch=auto.

// Ends with a newline. limit: the limit and its origin, "80000.0 MB (--memory), 2400.0 MB stay
// free". REQUIRES: every plan of the choice has memory().
[[nodiscard]] std::string MemoryTableText(const MicroBatchChoice& choice, const UpdateCost& cost,
                                          std::string_view limit);

}  // namespace gaccd
