#include "daemon/device/cuda/cuda_context.h"

#include <algorithm>
#include <functional>
#include <optional>

#include "collectives/base/environment.h"
#include "collectives/base/strings.h"
#include "daemon/device/cuda/cublaslt_product.h"
#include "daemon/device/cuda/device_memory.h"
#include "daemon/device/cuda/matmul_choices.h"

namespace gaccd {
namespace {

constexpr std::size_t kHalfBytes = 2;

struct GpuBytes {
  std::size_t free = 0;
  std::size_t total = 0;
};
Result<GpuBytes> BytesOnGpu() {
  GpuBytes bytes;
  GACCD_RETURN_IF_ERROR(
      CudaStatus(cudaMemGetInfo(&bytes.free, &bytes.total), "free memory of the GPU"));
  return bytes;
}

Result<MatmulChoicesKey> MakeChoicesKey(const CudaContextOptions& options) {
  MatmulChoicesKey key;
  cudaDeviceProp properties{};
  GACCD_RETURN_IF_ERROR(CudaStatus(cudaGetDeviceProperties(&properties, options.device),
                                   StrCat("properties of GPU ", options.device)));
  key.gpu_name = properties.name;
  key.compute_capability = 10 * properties.major + properties.minor;
  key.multiprocessors = properties.multiProcessorCount;
  key.cublaslt_version = options.cublaslt->GetVersion();
  GACCD_RETURN_IF_ERROR(
      CudaStatus(cudaDriverGetVersion(&key.driver_version), "version of the CUDA driver"));
  key.tf32 = options.numerics.tf32;
  return key;
}

// Environment variables that change what cuBLASLt computes or offers: "NAME=value, ...".
std::string EnvironmentOverrides() {
  const Environment environment = ProcessEnvironment();
  std::string found;
  for (const char* name : {"NVIDIA_TF32_OVERRIDE", "CUBLAS_EMULATE_SINGLE_PRECISION",
                           "CUBLAS_EMULATION_STRATEGY", "CUBLASLT_HEURISTICS_LUT_FILE"}) {
    const std::optional<std::string> value = environment(name);
    if (value.has_value()) found += StrCat(found.empty() ? "" : ", ", name, "=", *value);
  }
  return found;
}

// If products are not timed, the file is not read either.
std::unique_ptr<MatmulChoices> MakeChoices(const CudaContextOptions& options,
                                           const MatmulChoicesKey& key) {
  const std::string overrides = EnvironmentOverrides();
  const bool kept = IsTimed(options.numerics) && overrides.empty();
  auto choices = std::make_unique<MatmulChoices>(kept ? options.choices_folder : "", key);
  if (!overrides.empty()) {
    choices->AddNote(StrCat("the environment overrides how cuBLASLt computes (", overrides,
                            "): choices of matrix products are neither read nor kept"));
  }
  return choices;
}

}  // namespace

CudaContext::CudaContext(const CudaContextOptions& options) : options_(options) {}

CudaContext::~CudaContext() {
  // Running products use the workspace.
  if (compute_.get() != nullptr) (void)cudaStreamSynchronize(compute_.get());
  dnn_.reset();
  choices_.reset();  // saves what was not saved
  if (handle_ != nullptr) (void)options_.cublaslt->Destroy(handle_);
}

Result<std::unique_ptr<CudaContext>> CudaContext::Create(const CudaContextOptions& options) {
  std::unique_ptr<CudaContext> context(new CudaContext(options));
  CudaContextOptions& own = context->options_;
  if (own.cublaslt == nullptr) {
    GACCD_ASSIGN_OR_RETURN(own.cublaslt, LoadCublasLt());
  }
  GACCD_RETURN_IF_ERROR(CheckCublasLtVersion(own.cublaslt->GetVersion()));
  GACCD_RETURN_IF_ERROR(CudaStatus(cudaSetDevice(own.device), StrCat("use GPU ", own.device)));
  GACCD_ASSIGN_OR_RETURN(const MatmulChoicesKey key, MakeChoicesKey(own));
  context->multiprocessors_ = key.multiprocessors;
  context->compute_capability_ = key.compute_capability;
  GACCD_ASSIGN_OR_RETURN(context->compute_, CudaStream::Create());
  GACCD_ASSIGN_OR_RETURN(context->reduce_, CudaStream::Create(CudaStream::Priority::kHigh));
  GACCD_ASSIGN_OR_RETURN(context->copy_, CudaStream::Create());
  GACCD_RETURN_IF_ERROR(CublasLtStatus(*own.cublaslt, own.cublaslt->Create(&context->handle_),
                                       StrCat("start cuBLASLt on GPU ", own.device)));
  GACCD_ASSIGN_OR_RETURN(context->workspace_,
                         DeviceBuffer::Allocate(kWorkspaceBytes, "cuBLASLt's workspace"));
  context->choices_ = MakeChoices(own, key);
  return context;
}

Result<DnnLibrary*> CudaContext::dnn() {
  if (options_.dnn != nullptr && dnn_ == nullptr && dnn_started_.ok()) {
    auto opened = options_.dnn(*this);
    dnn_started_ = opened.status();
    if (opened.ok()) dnn_ = *std::move(opened);
  }
  GACCD_RETURN_IF_ERROR(dnn_started_);
  return dnn_.get();
}

void CudaContext::AddWarning(std::string warning) {
  if (std::ranges::find(warnings_, warning) == warnings_.end()) {
    warnings_.push_back(std::move(warning));
  }
}

int CudaContext::multiprocessors_left() const {
  const int taken = options_.reduction_multiprocessors;
  return taken > 0 && taken <= multiprocessors_ / 2 ? multiprocessors_ - taken : 0;
}

void CudaContext::SetHalfCopy(const float* master, std::int64_t elements, void* copy) {
  master_ = master;
  master_elements_ = elements;
  half_copy_ = copy;
}

const void* CudaContext::HalfCopy(const float* weight) const {
  if (half_copy_ == nullptr) return nullptr;
  const std::less<> before;  // compares pointers of different allocations
  if (before(weight, master_) || !before(weight, master_ + master_elements_)) return nullptr;
  return static_cast<const std::byte*>(half_copy_) +
         static_cast<std::size_t>(weight - master_) * kHalfBytes;
}

std::int64_t CudaContext::device_bytes() const {
  return static_cast<std::int64_t>(workspace_.bytes());
}

Status FitsOnGpu(const DeviceMemory& memory) {
  GACCD_ASSIGN_OR_RETURN(const GpuBytes bytes, BytesOnGpu());
  return memory.Fits(static_cast<std::int64_t>(bytes.free), static_cast<std::int64_t>(bytes.total));
}

Result<std::int64_t> FreeOnGpu() {
  GACCD_ASSIGN_OR_RETURN(const GpuBytes bytes, BytesOnGpu());
  return static_cast<std::int64_t>(bytes.free);
}

}  // namespace gaccd
