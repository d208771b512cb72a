// Converts results of oneDNN's C functions to a Status.
#pragma once

#include <dnnl_types.h>

#include <string_view>

#include "collectives/base/result.h"

namespace gaccd {

// OK for success. NoMemory() for dnnl_out_of_memory, as oneDNN allocates workspaces at run time;
// the result is then undefined. Otherwise kInternal: "`what`: dnnl_status_t 3".
[[nodiscard]] Status DnnlStatus(dnnl_status_t status, std::string_view what);

}  // namespace gaccd
