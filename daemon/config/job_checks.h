// Checks that involve several fields of a job: whether its parts are compatible.
#pragma once

#include <string_view>

#include "collectives/base/result.h"
#include "daemon/config/flags.h"
#include "daemon/config/job.h"

namespace gaccd {

// kConfig with the field, the expected and the actual value. For predict, targets are not required.
[[nodiscard]] Status CheckJob(const Job& job, Verb verb);

// kConfig if a field would have no effect, class names are wrong, or the job has no end. For a job
// given by the user, with its flags: a saved job has the class names of its data.
[[nodiscard]] Status CheckGivenJob(const Job& job);

// kConfig if the job uses numerics that CPUs do not support: TF32, fp16. why_cpu: "device is cpu".
// ParseJobText and OverlayFlags call it for device cpu; with device auto the device is known later.
[[nodiscard]] Status CheckCpuNumerics(const Numerics& numerics, std::string_view why_cpu);

// The same for GPUs: f64-sums.
[[nodiscard]] Status CheckGpuNumerics(const Numerics& numerics, std::string_view why_gpu);

// Checks whether the fields of a model are compatible.

// kConfig unless the model has either layers or an architecture; without a job text it has neither.
[[nodiscard]] Status CheckOneArchitecture(const ModelSpec& model);

// kConfig with the field, the expected and the actual value.
[[nodiscard]] Status CheckModel(const ModelSpec& model);

}  // namespace gaccd
