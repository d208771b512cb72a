#include "daemon/ops/collective/collective.h"
#include "daemon/ops/collective/collective_kernels.h"
#include "daemon/ops/cuda_request.h"

namespace gaccd {

KernelResult MakeCollectiveCuda(const CudaRequest& request) {
  cudaStream_t stream = request.on.stream;
  return MakeCollective(request,
                        {.comm = request.comm,
                         .memory = MemoryKind::kCuda,
                         .stream = {stream},
                         .copy = [stream](const void* from, std::size_t bytes, void* to) {
                           return CudaStatus(
                               cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream),
                               "copy of rows");
                         }});
}

}  // namespace gaccd
