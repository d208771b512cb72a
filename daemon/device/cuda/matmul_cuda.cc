#include "daemon/device/cuda/matmul_cuda.h"

#include <optional>
#include <utility>

#include "collectives/base/strings.h"
#include "daemon/device/cuda/cublaslt_product.h"
#include "daemon/device/cuda/matmul_timing.h"

namespace gaccd {

namespace {

struct Chosen {
  CublasLtProduct product;
  cublasLtMatmulAlgo_t algorithm;
};

// Nothing when none is offered or none runs.
Result<std::optional<Chosen>> Choose(CudaContext& context, const MatmulCudaSpec& spec) {
  GACCD_ASSIGN_OR_RETURN(CublasLtProduct product, CublasLtProduct::Create(context, spec));
  GACCD_ASSIGN_OR_RETURN(const auto algorithm, ChooseAlgorithm(product));
  if (!algorithm) return std::optional<Chosen>();
  return std::optional<Chosen>(Chosen{std::move(product), *algorithm});
}

}  // namespace

struct MatmulCuda::Parts {
  Chosen alone;
  std::optional<Chosen> overlapping;  // with a reduction
};

MatmulCuda::MatmulCuda(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

MatmulCuda::~MatmulCuda() = default;

Result<std::unique_ptr<MatmulCuda>> MatmulCuda::TryPrepare(CudaContext& context,
                                                           const MatmulCudaSpec& spec, Pass pass) {
  GACCD_RETURN_IF_ERROR(Check(spec));
  GACCD_ASSIGN_OR_RETURN(std::optional<Chosen> alone, Choose(context, spec));
  if (!alone) return std::unique_ptr<MatmulCuda>();
  auto parts = std::make_unique<Parts>(Parts{*std::move(alone), std::nullopt});
  if (pass == Pass::kBackward && context.multiprocessors_left() > 0) {
    MatmulCudaSpec fewer = spec;
    fewer.multiprocessors = context.multiprocessors_left();
    GACCD_ASSIGN_OR_RETURN(parts->overlapping, Choose(context, fewer));
  }
  return std::unique_ptr<MatmulCuda>(new MatmulCuda(std::move(parts)));
}

Result<std::unique_ptr<MatmulCuda>> MatmulCuda::Prepare(CudaContext& context,
                                                        const MatmulCudaSpec& spec, Pass pass) {
  GACCD_ASSIGN_OR_RETURN(auto matmul, TryPrepare(context, spec, pass));
  if (matmul != nullptr) return matmul;
  return Status(ErrorKind::kUnavailable,
                StrCat(ToText(spec), ": cuBLASLt has no algorithm for it that runs on this GPU"));
}

Status MatmulCuda::Bind(const void* a, const void* b, const void* bias, void* c, float* sums,
                        void* aux) {
  const MatmulPointers pointers{.a = a, .b = b, .c = c, .bias = bias, .sums = sums, .aux = aux};
  GACCD_RETURN_IF_ERROR(parts_->alone.product.Bind(pointers));
  return parts_->overlapping ? parts_->overlapping->product.Bind(pointers) : Status::Ok();
}

Status MatmulCuda::Run() {
  const bool overlapping =
      parts_->overlapping && parts_->alone.product.context().overlaps_reductions();
  Chosen& chosen = overlapping ? *parts_->overlapping : parts_->alone;
  CublasLtProduct& product = chosen.product;
  if (!product.bound()) {
    return {ErrorKind::kInternal, StrCat(ToText(product.spec()), ": Run() before Bind()")};
  }
  const cublasStatus_t status = product.Enqueue(chosen.algorithm);
  if (status == CUBLAS_STATUS_SUCCESS) return Status::Ok();  // builds no text
  return CublasLtStatus(product.context().cublaslt(), status, ToText(product.spec()));
}

}  // namespace gaccd
