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

// Empty if no algorithm is offered or none works.
Result<std::optional<Chosen>> Choose(CudaContext& context, const MatmulCudaSpec& spec) {
  GACCD_ASSIGN_OR_RETURN(CublasLtProduct product, CublasLtProduct::Create(context, spec));
  GACCD_ASSIGN_OR_RETURN(const auto algorithm, ChooseAlgorithm(product));
  if (!algorithm) return std::optional<Chosen>();
  return std::optional<Chosen>(Chosen{std::move(product), *algorithm});
}

// Whether C = A^T B, a weight gradient, can be computed as two products: all terms except the last
// few, plus the last ones. Their rows of A and B are contiguous.
bool CanSplitInTwo(const MatmulCudaSpec& spec) {
  return MayLoseLastTerms(spec) && !spec.transpose_b && !spec.writes_sums();
}

}  // namespace

struct MatmulCuda::Parts {
  Chosen alone;
  std::optional<Chosen> overlapping;  // for running concurrently with a reduction
  // If every algorithm loses the last terms of the product: a product of these, added to the
  // others.
  std::unique_ptr<MatmulCuda> last_terms;
  std::size_t a_bytes = 0, b_bytes = 0;  // offsets of the last terms in A and B
};

MatmulCuda::MatmulCuda(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

MatmulCuda::~MatmulCuda() = default;

Result<std::unique_ptr<MatmulCuda>> MatmulCuda::TryPrepare(CudaContext& context,
                                                           const MatmulCudaSpec& spec, Pass pass) {
  GACCD_RETURN_IF_ERROR(Check(spec));
  GACCD_ASSIGN_OR_RETURN(std::optional<Chosen> alone, Choose(context, spec));
  if (!alone) return std::unique_ptr<MatmulCuda>();
  auto parts = std::make_unique<Parts>(Parts{.alone = *std::move(alone)});
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
  MatmulCudaSpec most = spec;
  MatmulCudaSpec last = spec;
  most.k = spec.k / kWholeTiles * kWholeTiles;
  last.k = spec.k - most.k;
  last.accumulate = true;
  if (CanSplitInTwo(spec)) {
    GACCD_ASSIGN_OR_RETURN(matmul, TryPrepare(context, most, pass));
    GACCD_ASSIGN_OR_RETURN(auto last_terms, TryPrepare(context, last, pass));
    if (matmul != nullptr && last_terms != nullptr) {
      const auto rows = static_cast<std::size_t>(most.k) * SizeOf(spec.ab);
      const std::int64_t step_a = spec.stride_a > 0 ? spec.stride_a : spec.columns_a();
      matmul->parts_->last_terms = std::move(last_terms);
      matmul->parts_->a_bytes = rows * static_cast<std::size_t>(step_a);
      matmul->parts_->b_bytes = rows * static_cast<std::size_t>(spec.n);
      return matmul;
    }
  }
  return Status(ErrorKind::kUnavailable,
                StrCat(ToText(spec), ": cuBLASLt has no algorithm for it that runs on this GPU"));
}

Status MatmulCuda::Bind(const void* a, const void* b, const void* bias, void* c, float* sums,
                        void* aux) {
  if (parts_->last_terms != nullptr) {
    GACCD_RETURN_IF_ERROR(parts_->last_terms->Bind(
        static_cast<const std::byte*>(a) + parts_->a_bytes,
        static_cast<const std::byte*>(b) + parts_->b_bytes, nullptr, c, nullptr));
  }
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
  if (status == CUBLAS_STATUS_SUCCESS) {  // without building an error text
    return parts_->last_terms == nullptr ? Status::Ok() : parts_->last_terms->Run();
  }
  return CublasLtStatus(product.context().cublaslt(), status, ToText(product.spec()));
}

}  // namespace gaccd
