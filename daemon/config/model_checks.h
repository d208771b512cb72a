// What one field of a model alone cannot show: whether its parts are compatible.
#pragma once

#include "collectives/base/result.h"
#include "daemon/config/job.h"

namespace gaccd {

// kConfig: layers and an architecture, or neither; there is neither without a job text.
[[nodiscard]] Status CheckOneArchitecture(const ModelSpec& model);

// kConfig with the field, the expected and the found value.
[[nodiscard]] Status CheckModel(const ModelSpec& model);

}  // namespace gaccd
