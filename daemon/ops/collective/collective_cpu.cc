#include <cstring>

#include "daemon/ops/collective/collective.h"
#include "daemon/ops/collective/collective_kernels.h"
#include "daemon/ops/cpu_kernels.h"

namespace gaccd {

KernelResult MakeCollectiveCpu(const KernelRequest& request, const CpuEnvironment& environment) {
  return MakeCollective(request, {.comm = environment.comm,
                                  .copy = [](const void* from, std::size_t bytes, void* to) {
                                    std::memcpy(to, from, bytes);
                                    return Status::Ok();
                                  }});
}

}  // namespace gaccd
