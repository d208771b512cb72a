// Gradients of collective operations on 1..3 GPUs, over stand-ins of the GPU and of NCCL.
#include <gtest/gtest.h>

#include <list>

#include "daemon/device/cuda/cuda_context.h"
#include "daemon/ops/cuda_kernels.h"
#include "tests/ranks/nccl_ranks.h"
#include "tests/ranks/op_gradients.h"
#include "tests/standin/cublaslt_standin.h"

namespace gaccd {
namespace {

class CudaDevice final : public testing::GradientDevice {
 public:
  explicit CudaDevice(int gpu) : gpu_(gpu) {}

  Result<KernelFactory*> Kernels(Communicator& comm) override {
    GACCD_ASSIGN_OR_RETURN(
        context_, CudaContext::Create({.device = gpu_, .cublaslt = &standin::StandInCublasLt()}));
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
  std::unique_ptr<CudaContext> context_;
  std::unique_ptr<KernelFactory> kernels_;
  std::list<DeviceBuffer> buffers_;
};

Status RunOnGpus(const testing::GradientCase& test, int ranks) {
  testing::ResetGpus(3);
  return testing::RunNcclRanks(ranks, {}, [&](Communicator& comm, Communicator&) {
    return test.run({comm, [&]() -> Result<std::unique_ptr<testing::GradientDevice>> {
                       return std::unique_ptr<testing::GradientDevice>(
                           std::make_unique<CudaDevice>(comm.rank()));
                     }});
  });
}

TEST(CollectiveGradientsOnGpus, EqualFiniteDifferences) {
  for (const testing::GradientCase& test : testing::GradientCases()) {
    for (int ranks = 1; ranks <= 3; ++ranks) {
      const Status status = RunOnGpus(test, ranks);
      EXPECT_TRUE(status.ok()) << test.name << ", " << ranks << " ranks: " << status.message();
    }
  }
}

TEST(CollectiveGradientsOnGpus, WrongOnesAreSeen) {
  for (const testing::GradientCase& test : testing::WrongGradientCases()) {
    EXPECT_FALSE(RunOnGpus(test, 3).ok()) << test.name;
  }
}

}  // namespace
}  // namespace gaccd
