// What oneDNN's C functions return, as a Status.
#pragma once

#include <dnnl_types.h>

#include <string_view>

#include "collectives/base/result.h"

namespace gaccd {

// OK for success. NoMemory() for dnnl_out_of_memory, as oneDNN takes workspaces when it runs; then
// nobody knows what was computed. Else kInternal: "`what`: dnnl_status_t 3".
[[nodiscard]] Status DnnlStatus(dnnl_status_t status, std::string_view what);

}  // namespace gaccd
