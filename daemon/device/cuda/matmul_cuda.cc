#include "daemon/device/cuda/matmul_cuda.h"

#include <utility>

#include "collectives/base/strings.h"
#include "daemon/device/cuda/cublaslt_product.h"
#include "daemon/device/cuda/matmul_timing.h"

namespace gaccd {

struct MatmulCuda::Parts {
  CublasLtProduct product;
  cublasLtMatmulAlgo_t algorithm;
};

MatmulCuda::MatmulCuda(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

MatmulCuda::~MatmulCuda() = default;

Result<std::unique_ptr<MatmulCuda>> MatmulCuda::TryPrepare(CudaContext& context,
                                                           const MatmulCudaSpec& spec) {
  GACCD_RETURN_IF_ERROR(Check(spec));
  GACCD_ASSIGN_OR_RETURN(CublasLtProduct product, CublasLtProduct::Create(context, spec));
  GACCD_ASSIGN_OR_RETURN(const auto algorithm, ChooseAlgorithm(product));
  if (!algorithm) return std::unique_ptr<MatmulCuda>();
  auto parts = std::make_unique<Parts>(Parts{std::move(product), *algorithm});
  return std::unique_ptr<MatmulCuda>(new MatmulCuda(std::move(parts)));
}

Result<std::unique_ptr<MatmulCuda>> MatmulCuda::Prepare(CudaContext& context,
                                                        const MatmulCudaSpec& spec) {
  GACCD_ASSIGN_OR_RETURN(auto matmul, TryPrepare(context, spec));
  if (matmul != nullptr) return matmul;
  return Status(ErrorKind::kUnavailable,
                StrCat(ToText(spec), ": cuBLASLt has no algorithm for it that runs on this GPU"));
}

Status MatmulCuda::Bind(const void* a, const void* b, const void* bias, void* c, float* sums) {
  return parts_->product.Bind({.a = a, .b = b, .c = c, .bias = bias, .sums = sums});
}

Status MatmulCuda::Run() {
  CublasLtProduct& product = parts_->product;
  if (!product.bound()) {
    return {ErrorKind::kInternal, StrCat(ToText(product.spec()), ": Run() before Bind()")};
  }
  const cublasStatus_t status = product.Enqueue(parts_->algorithm);
  if (status == CUBLAS_STATUS_SUCCESS) return Status::Ok();  // builds no text
  return CublasLtStatus(product.context().cublaslt(), status, ToText(product.spec()));
}

}  // namespace gaccd
