#include <cstring>

#include "collectives/base/simd.h"
#include "daemon/ops/collective/collective.h"
#include "daemon/ops/collective/collective_kernels.h"
#include "daemon/ops/cpu_kernels.h"

namespace gaccd {
namespace {

GACCD_SIMD_CLONES
void Divide(const float* in, std::int64_t elements, std::int64_t count, float* out) {
  const auto by = static_cast<double>(count);
  for (std::int64_t i = 0; i < elements; ++i) {
    out[i] = static_cast<float>(static_cast<double>(in[i]) / by);
  }
}

}  // namespace

KernelResult MakeCollectiveCpu(const KernelRequest& request, const CpuEnvironment& environment) {
  return MakeCollective(
      request, {.comm = environment.comm,
                .copy =
                    [](const void* from, std::size_t bytes, void* to) {
                      std::memcpy(to, from, bytes);
                      return Status::Ok();
                    },
                .clear =
                    [](void* to, std::size_t bytes) {
                      std::memset(to, 0, bytes);
                      return Status::Ok();
                    },
                .divide =
                    [](const float* in, std::int64_t elements, std::int64_t count, float* out) {
                      Divide(in, elements, count, out);
                      return Status::Ok();
                    }});
}

}  // namespace gaccd
