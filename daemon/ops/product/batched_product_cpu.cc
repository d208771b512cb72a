#include <utility>

#include "daemon/device/cpu/matmul.h"
#include "daemon/ops/call_kernel.h"
#include "daemon/ops/cpu_kernels.h"
#include "daemon/ops/product/batched_product.h"

namespace gaccd {
namespace {

// One prepared product, used for all matrices of the list.
class BatchedProductKernel : public Kernel {
 public:
  BatchedProductKernel(Matmul matmul, const KernelRequest& request)
      : matmul_(std::move(matmul)), count_(request.inputs[0].shape[0]) {
    if (count_ == 0) return;
    a_elements_ = Elements(request.inputs[0].shape) / count_;
    b_elements_ = Elements(request.inputs[1].shape) / count_;
    y_elements_ = Elements(request.outputs[0].shape) / count_;
  }

  [[nodiscard]] std::int64_t scratch_bytes() const override { return matmul_.scratch_bytes(); }
  void Bind(const Operands& operands) override {
    a_ = operands.in<float>(0);
    b_ = operands.in<float>(1);
    y_ = operands.out<float>(0);
    scratch_ = operands.scratch;
  }
  Status Run(OutputMask) override {
    for (std::int64_t n = 0; n < count_; ++n) {
      matmul_.Bind(a_ + n * a_elements_, b_ + n * b_elements_, nullptr, y_ + n * y_elements_,
                   scratch_);
      GACCD_RETURN_IF_ERROR(matmul_.Run());
    }
    return Status::Ok();
  }

 private:
  Matmul matmul_;
  std::int64_t count_;
  std::int64_t a_elements_ = 0;
  std::int64_t b_elements_ = 0;
  std::int64_t y_elements_ = 0;
  const float* a_ = nullptr;
  const float* b_ = nullptr;
  float* y_ = nullptr;
  void* scratch_ = nullptr;
};

}  // namespace

KernelResult MakeBatchedProductCpu(const KernelRequest& request,
                                   const CpuEnvironment& environment) {
  const auto& product = static_cast<const BatchedProduct&>(request.function);
  const Shape& a = request.inputs[0].shape;
  const Shape& y = request.outputs[0].shape;
  GACCD_ASSIGN_OR_RETURN(
      Matmul matmul, Matmul::Prepare(environment.context, {.m = y[1],
                                                           .n = y[2],
                                                           .k = a[product.transpose_a() ? 1 : 2],
                                                           .transpose_a = product.transpose_a(),
                                                           .transpose_b = product.transpose_b()}));
  return MakeKernel<BatchedProductKernel>(std::move(matmul), request);
}

}  // namespace gaccd
