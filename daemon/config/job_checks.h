// What one field of a job alone cannot show: whether its parts are compatible.
#pragma once

#include <string_view>

#include "collectives/base/result.h"
#include "daemon/config/flags.h"
#include "daemon/config/job.h"

namespace gaccd {

// kConfig: layers and an architecture, or neither; there is neither without a job text.
[[nodiscard]] Status CheckOneArchitecture(const ModelSpec& model);

// kConfig with the field, the expected and the found value. Targets are not asked of a job to
// predict.
[[nodiscard]] Status CheckWholeJob(const Job& job, Verb verb);

// kConfig with what would have no effect, or name classes wrongly. Of a job that a user gives: one
// that was saved has the class names that its data had.
[[nodiscard]] Status CheckGivenJob(const Job& job);

// kConfig when the job wants numerics that CPUs do not have: TF32, fp16. why_cpu: "device is cpu".
// ParseJobText and OverlayFlags call it for device cpu; with device auto it is known later.
[[nodiscard]] Status CheckNumericsOfCpu(const Numerics& numerics, std::string_view why_cpu);

}  // namespace gaccd
