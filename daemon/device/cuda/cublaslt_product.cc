#include "daemon/device/cuda/cublaslt_product.h"

#include <array>

#include "collectives/base/strings.h"
#include "daemon/device/cuda/matmul_choices.h"

namespace gaccd {
namespace {

cudaDataType_t CudaType(DType dtype) {
  if (dtype == DType::kBF16) return CUDA_R_16BF;
  return dtype == DType::kFP16 ? CUDA_R_16F : CUDA_R_32F;
}

// Partial sums of a product that is split along k. In place: added in C in the order in which parts
// finish. Output type: 16-bit sums for a 16-bit C, while all our sums are f32.
std::uint32_t AllowedReductions(const MatmulCudaSpec& spec, const CudaNumerics& numerics) {
  if (spec.c != DType::kF32) return CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  if (numerics.deterministic) {
    return CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE | CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE;
  }
  return CUBLASLT_REDUCTION_SCHEME_MASK;
}

// An address with the minimum alignment of a bias: the heuristic derives the alignment from it and
// does not read it.
const void* WorstBias(const CudaContext& context) {
  return context.workspace().as<std::byte>() + kBiasAlignment;
}

Status CheckPointer(const MatmulCudaSpec& spec, const char* name, const void* pointer,
                    std::uint32_t alignment) {
  if (pointer != nullptr && reinterpret_cast<std::uintptr_t>(pointer) % alignment == 0) {
    return Status::Ok();
  }
  return {ErrorKind::kInternal, StrCat(ToText(spec), ": ", name, " must be at a multiple of ",
                                       alignment, " bytes, found ", pointer)};
}

}  // namespace

Status CublasLtStatus(const CublasLtApi& api, cublasStatus_t status, std::string_view what) {
  if (status == CUBLAS_STATUS_SUCCESS) return Status::Ok();
  const ErrorKind kind =
      status == CUBLAS_STATUS_ALLOC_FAILED ? ErrorKind::kOs : ErrorKind::kUnavailable;
  return {kind, StrCat(what, ": ", api.GetStatusString(status), " (cuBLASLt status ",
                       static_cast<int>(status), ")")};
}

bool IsUnsupported(cublasStatus_t status) {
  return status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE ||
         status == CUBLAS_STATUS_ARCH_MISMATCH;
}

CublasLtProduct::CublasLtProduct(CudaContext& context, const MatmulCudaSpec& spec)
    : context_(&context),
      spec_(spec),
      description_(nullptr, context.cublaslt().MatmulDescDestroy),
      layout_a_(nullptr, context.cublaslt().MatrixLayoutDestroy),
      layout_b_(nullptr, context.cublaslt().MatrixLayoutDestroy),
      layout_c_(nullptr, context.cublaslt().MatrixLayoutDestroy),
      preference_(nullptr, context.cublaslt().MatmulPreferenceDestroy) {}

Result<CublasLtProduct> CublasLtProduct::Create(CudaContext& context, const MatmulCudaSpec& spec) {
  CublasLtProduct product(context, spec);
  Status status = product.Describe();
  if (status.ok()) status = product.SetPreference();
  if (!status.ok()) return std::move(status).WithContext(ToText(spec));
  return product;
}

Status CublasLtProduct::Describe() {
  const CublasLtApi& api = context_->cublaslt();
  const bool tf32 = context_->numerics().tf32 && spec_.ab == DType::kF32;
  cublasLtMatmulDesc_t description = nullptr;
  GACCD_RETURN_IF_ERROR(CublasLtStatus(
      api,
      api.MatmulDescCreate(&description, tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F,
                           CUDA_R_32F),
      "cublasLtMatmulDescCreate"));
  description_.reset(description);

  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const auto& value,
                       const char* what) {
    return CublasLtStatus(
        api, api.MatmulDescSetAttribute(description, attribute, &value, sizeof(value)), what);
  };
  // The library's A' is our B: see the table in the header.
  const std::int32_t transpose_first = spec_.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
  const std::int32_t transpose_second = spec_.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
  const std::uint32_t epilogue = Epilogue();
  GACCD_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_DESC_TRANSA, transpose_first, "set TRANSA"));
  GACCD_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_DESC_TRANSB, transpose_second, "set TRANSB"));
  GACCD_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue, "set EPILOGUE"));
  if (spec_.multiprocessors > 0) {
    const std::int32_t count = spec_.multiprocessors;
    GACCD_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, count, "set SM_COUNT_TARGET"));
  }
  if (spec_.bias || spec_.writes_sums()) {
    GACCD_RETURN_IF_ERROR(SetBiasPointer(WorstBias(*context_)));
  }
  if (spec_.has_aux()) {
    const std::int64_t columns = spec_.n;
    GACCD_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, columns, "set AUX_LD"));
    GACCD_RETURN_IF_ERROR(
        SetAuxPointer(context_->workspace().as<std::byte>() + OperandAlignment(spec_.c)));
  }
  GACCD_RETURN_IF_ERROR(SetLayout(&layout_a_, spec_.ab, spec_.transpose_a ? spec_.k : spec_.m,
                                  spec_.columns_a(), spec_.stride_a));
  GACCD_RETURN_IF_ERROR(SetLayout(&layout_b_, spec_.ab, spec_.transpose_b ? spec_.n : spec_.k,
                                  spec_.transpose_b ? spec_.k : spec_.n, 0));
  return SetLayout(&layout_c_, spec_.c, spec_.m, spec_.n, spec_.stride_c);
}

cublasLtEpilogue_t CublasLtProduct::Epilogue() const {
  if (spec_.column_sums) return CUBLASLT_EPILOGUE_BGRADB;
  if (spec_.column_sums_of_b) return CUBLASLT_EPILOGUE_BGRADA;
  switch (spec_.gelu) {
    case MatmulGelu::kApply:
      return spec_.bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
    case MatmulGelu::kKeep:
      return spec_.bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
    case MatmulGelu::kGradient:
      return CUBLASLT_EPILOGUE_DGELU;
    case MatmulGelu::kNone:
      break;
  }
  if (spec_.bias) return spec_.relu ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_BIAS;
  return spec_.relu ? CUBLASLT_EPILOGUE_RELU : CUBLASLT_EPILOGUE_DEFAULT;
}

// rows, columns, stride: of the row-major matrix.
Status CublasLtProduct::SetLayout(Owned<cublasLtMatrixLayout_t>* layout, DType dtype,
                                  std::int64_t rows, std::int64_t columns, std::int64_t stride) {
  const CublasLtApi& api = context_->cublaslt();
  cublasLtMatrixLayout_t created = nullptr;
  GACCD_RETURN_IF_ERROR(CublasLtStatus(
      api,
      api.MatrixLayoutCreate(&created, CudaType(dtype), static_cast<std::uint64_t>(columns),
                             static_cast<std::uint64_t>(rows), stride > 0 ? stride : columns),
      "cublasLtMatrixLayoutCreate"));
  layout->reset(created);
  return Status::Ok();
}

Status CublasLtProduct::SetPreference() {
  const CublasLtApi& api = context_->cublaslt();
  cublasLtMatmulPreference_t preference = nullptr;
  GACCD_RETURN_IF_ERROR(CublasLtStatus(api, api.MatmulPreferenceCreate(&preference),
                                       "cublasLtMatmulPreferenceCreate"));
  preference_.reset(preference);
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value,
                       const char* what) {
    return CublasLtStatus(
        api, api.MatmulPreferenceSetAttribute(preference, attribute, &value, sizeof(value)), what);
  };
  const std::uint64_t workspace = context_->workspace().bytes();
  const std::uint32_t reductions = AllowedReductions(spec_, context_->numerics());
  const std::uint32_t ab = OperandAlignment(spec_.ab);
  const std::uint32_t c = OperandAlignment(spec_.c);
  GACCD_RETURN_IF_ERROR(
      set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace, "set MAX_WORKSPACE_BYTES"));
  GACCD_RETURN_IF_ERROR(
      set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reductions, "set REDUCTION_SCHEME_MASK"));
  GACCD_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, ab, "set ALIGNMENT_A"));
  GACCD_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, ab, "set ALIGNMENT_B"));
  GACCD_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, c, "set ALIGNMENT_C"));
  return set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, c, "set ALIGNMENT_D");
}

Result<std::vector<cublasLtMatmulAlgo_t>> CublasLtProduct::Candidates() {
  const CublasLtApi& api = context_->cublaslt();
  std::vector<cublasLtMatmulAlgo_t> algorithms;
  std::array<cublasLtMatmulHeuristicResult_t, kCandidates> found{};
  int count = 0;
  const cublasStatus_t status = api.MatmulAlgoGetHeuristic(
      context_->cublaslt_handle(), description_.get(), layout_b_.get(), layout_a_.get(),
      layout_c_.get(), layout_c_.get(), preference_.get(), kCandidates, found.data(), &count);
  if (status == CUBLAS_STATUS_INVALID_VALUE) {
    // cuBLASLt returns this for some combinations instead of "not supported".
    context_->choices().AddNote(
        StrCat(ToText(spec_), ": cuBLASLt calls it invalid, taken as not supported"));
  }
  if (IsUnsupported(status)) return algorithms;
  GACCD_RETURN_IF_ERROR(
      CublasLtStatus(api, status, StrCat(ToText(spec_), ": cublasLtMatmulAlgoGetHeuristic")));
  for (int i = 0; i < count && i < kCandidates; ++i) {
    const cublasLtMatmulHeuristicResult_t& one = found[static_cast<std::size_t>(i)];
    if (one.state != CUBLAS_STATUS_SUCCESS) continue;
    if (one.workspaceSize > context_->workspace().bytes()) continue;
    algorithms.push_back(one.algo);
  }
  return algorithms;
}

bool CublasLtProduct::Accepts(const cublasLtMatmulAlgo_t& algorithm) {
  cublasLtMatmulHeuristicResult_t result{};
  const cublasStatus_t status = context_->cublaslt().MatmulAlgoCheck(
      context_->cublaslt_handle(), description_.get(), layout_b_.get(), layout_a_.get(),
      layout_c_.get(), layout_c_.get(), &algorithm, &result);
  return status == CUBLAS_STATUS_SUCCESS && result.workspaceSize <= context_->workspace().bytes();
}

Status CublasLtProduct::SetBiasPointer(const void* pointer) {
  const CublasLtApi& api = context_->cublaslt();
  return CublasLtStatus(
      api,
      api.MatmulDescSetAttribute(description_.get(), CUBLASLT_MATMUL_DESC_BIAS_POINTER, &pointer,
                                 sizeof(pointer)),
      "set BIAS_POINTER");
}

Status CublasLtProduct::SetAuxPointer(const void* pointer) {
  const CublasLtApi& api = context_->cublaslt();
  return CublasLtStatus(
      api,
      api.MatmulDescSetAttribute(description_.get(), CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER,
                                 &pointer, sizeof(pointer)),
      "set EPILOGUE_AUX_POINTER");
}

Status CublasLtProduct::Bind(const MatmulPointers& pointers) {
  const std::uint32_t ab = OperandAlignment(spec_.ab);
  GACCD_RETURN_IF_ERROR(CheckPointer(spec_, "A", pointers.a, ab));
  GACCD_RETURN_IF_ERROR(CheckPointer(spec_, "B", pointers.b, ab));
  GACCD_RETURN_IF_ERROR(CheckPointer(spec_, "C", pointers.c, OperandAlignment(spec_.c)));
  if (spec_.bias || spec_.writes_sums()) {
    const void* const bias = spec_.bias ? pointers.bias : pointers.sums;
    GACCD_RETURN_IF_ERROR(
        CheckPointer(spec_, spec_.bias ? "bias" : "column sums", bias, kBiasAlignment));
    Status status = SetBiasPointer(bias);
    if (!status.ok()) return std::move(status).WithContext(ToText(spec_));
  }
  if (spec_.has_aux()) {
    GACCD_RETURN_IF_ERROR(CheckPointer(spec_, "aux", pointers.aux, OperandAlignment(spec_.c)));
    Status status = SetAuxPointer(pointers.aux);
    if (!status.ok()) return std::move(status).WithContext(ToText(spec_));
  }
  pointers_ = pointers;
  return Status::Ok();
}

cublasStatus_t CublasLtProduct::Enqueue(const cublasLtMatmulAlgo_t& algorithm) {
  // Read during the call (host pointer mode), so that a captured graph keeps the values.
  const float alpha = 1;
  const float beta = spec_.accumulate ? 1 : 0;
  return context_->cublaslt().Matmul(context_->cublaslt_handle(), description_.get(), &alpha,
                                     pointers_.b, layout_b_.get(), pointers_.a, layout_a_.get(),
                                     &beta, pointers_.c, layout_c_.get(), pointers_.c,
                                     layout_c_.get(), &algorithm, context_->workspace().data(),
                                     context_->workspace().bytes(), context_->compute());
}

}  // namespace gaccd
