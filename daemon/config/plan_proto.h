// The plan as proto/plan.proto: for JSON lines, text files and the `plan` event.
#pragma once

#include <string>

#include "daemon/plan/plan.h"

namespace gaccd {

namespace proto {
class Plan;
}

// Sets every field of `message`.
void FillPlanProto(const Plan& plan, proto::Plan& message);

// One flat line of JSON with exactly the keys of proto/plan.proto in their order; no line break.
[[nodiscard]] std::string PlanJson(const Plan& plan);

// Text proto with the two header comments; ends with a newline.
[[nodiscard]] std::string PlanTxtpb(const Plan& plan);

}  // namespace gaccd
