// The plan as proto/plan.proto: for JSON lines, text files and the `plan` event.
#pragma once

#include <cstdint>
#include <string>

#include "collectives/base/result.h"
#include "daemon/plan/plan.h"

namespace gaccd {

namespace proto {
class Plan;
}

// Sets every field of `message`; those of speeds if the ranks have different ones, those of memory
// if it determined the micro-batch.
void FillPlanProto(const Plan& plan, proto::Plan& message);

// One flat line of JSON with exactly the keys of proto/plan.proto in their order; no line break.
[[nodiscard]] std::string PlanJson(const Plan& plan);

// One line per rank: rank, first (Plan::Offset), samples, micro_batches (sizes). kUsage if there
// are more than kMaxRankMicroBatches sizes.
inline constexpr std::int64_t kMaxRankMicroBatches = std::int64_t{1} << 24;
[[nodiscard]] Result<std::string> RanksJson(const Plan& plan);

// Text proto with the two header comments; ends with a newline.
[[nodiscard]] std::string PlanTxtpb(const Plan& plan);

}  // namespace gaccd
