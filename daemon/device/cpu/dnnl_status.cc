#include "daemon/device/cpu/dnnl_status.h"

#include "collectives/base/process_memory.h"
#include "collectives/base/strings.h"

namespace gaccd {

Status DnnlStatus(dnnl_status_t status, std::string_view what) {
  if (status == dnnl_success) return Status::Ok();
  if (status == dnnl_out_of_memory) return NoMemory(StrCat("the workspace of a ", what), 0);
  return {ErrorKind::kInternal, StrCat(what, ": dnnl_status_t ", static_cast<int>(status))};
}

}  // namespace gaccd
