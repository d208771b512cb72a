// Checks whether the fields of a model are compatible.
#pragma once

#include "collectives/base/result.h"
#include "daemon/config/job.h"

namespace gaccd {

// kConfig unless the model has either layers or an architecture; without a job text it has neither.
[[nodiscard]] Status CheckOneArchitecture(const ModelSpec& model);

// kConfig with the field, the expected and the actual value.
[[nodiscard]] Status CheckModel(const ModelSpec& model);

}  // namespace gaccd
