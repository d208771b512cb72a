#include "tests/ranks/gpu_gradient_device.h"

#include <list>

#include "daemon/device/cuda/cuda_context.h"
#include "daemon/ops/cuda_kernels.h"

namespace gaccd::tests {
namespace {

class GpuDevice final : public GradientDevice {
 public:
  GpuDevice(int gpu, const CublasLtApi* cublaslt) : gpu_(gpu), cublaslt_(cublaslt) {}

  Result<KernelFactory*> Kernels(Communicator& comm) override {
    GACCD_ASSIGN_OR_RETURN(context_, CudaContext::Create({.device = gpu_, .cublaslt = cublaslt_}));
    kernels_ = MakeCudaKernels(*context_, nullptr, &comm);
    return kernels_.get();
  }
  Result<void*> Allocate(std::size_t bytes) override {
    GACCD_ASSIGN_OR_RETURN(DeviceBuffer buffer, DeviceBuffer::Allocate(bytes, "values"));
    buffers_.push_back(std::move(buffer));
    return static_cast<void*>(buffers_.back().data());
  }
  Status Copy(void* to, const void* from, std::size_t bytes, bool to_device) override {
    if (bytes == 0) return Status::Ok();
    GACCD_RETURN_IF_ERROR(
        CudaStatus(cudaMemcpyAsync(to, from, bytes,
                                   to_device ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost,
                                   context_->compute()),
                   "copy"));
    return CudaStatus(cudaStreamSynchronize(context_->compute()), "wait for a copy");
  }

 private:
  int gpu_;
  const CublasLtApi* cublaslt_;
  std::unique_ptr<CudaContext> context_;
  std::unique_ptr<KernelFactory> kernels_;
  std::list<DeviceBuffer> buffers_;
};

}  // namespace

MakeDevice GpuGradientDevice(int gpu, const CublasLtApi* cublaslt) {
  return [=]() -> Result<std::unique_ptr<GradientDevice>> {
    return std::unique_ptr<GradientDevice>(std::make_unique<GpuDevice>(gpu, cublaslt));
  };
}

}  // namespace gaccd::tests
