// CudaContext: GPU resources shared by the kernels of one rank: streams, cuBLASLt with its
// workspace, cuDNN, algorithm choices, and 16-bit copies of the weights. Used by one thread, whose
// current device it sets.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "collectives/base/cuda.h"
#include "collectives/base/result.h"
#include "daemon/device/cuda/cublaslt_api.h"
#include "daemon/device/cuda/dnn_library.h"

namespace gaccd {

class DeviceMemory;
class MatmulChoices;

// Numerics of matrix products. Values in memory are f32, bf16 or fp16 as in the graph; sums are
// f32.
struct CudaNumerics {
  bool tf32 = false;           // f32 products may round their inputs to TF32 (10 bits)
  bool deterministic = false;  // bit-identical from run to run: no timing, no atomic reductions
  // Use the fastest algorithm for each product on this GPU, not the first working one offered by
  // cuBLASLt.
  bool time_algorithms = false;
};

// `deterministic` has priority: choices by time differ from run to run and between ranks, each of
// which measures itself.
[[nodiscard]] constexpr bool IsTimed(const CudaNumerics& numerics) {
  return numerics.time_algorithms && !numerics.deterministic;
}

struct CudaContextOptions {
  int device = 0;
  CudaNumerics numerics;
  // Multiprocessors used by reductions during the backward pass; 0: no reductions.
  int reduction_multiprocessors = 0;
  // Folder in which timed choices are kept between runs; empty: not kept.
  std::string choices_folder;
  const CublasLtApi* cublaslt = nullptr;  // not owned; LoadCublasLt() or a replacement
  DnnFactory dnn = nullptr;               // FindCudnn() or a replacement; null: none
};

class CudaContext {
 public:
  // NVIDIA's recommendation for cuBLASLt on Hopper
  static constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;

  // kUnavailable: no such GPU, or cuBLASLt is missing or too old; kOs: no memory on the GPU.
  static Result<std::unique_ptr<CudaContext>> Create(const CudaContextOptions& options);
  ~CudaContext();
  CudaContext(const CudaContext&) = delete;
  CudaContext& operator=(const CudaContext&) = delete;

  [[nodiscard]] int device() const { return options_.device; }
  [[nodiscard]] const CudaNumerics& numerics() const { return options_.numerics; }
  [[nodiscard]] int multiprocessors() const { return multiprocessors_; }
  [[nodiscard]] int compute_capability() const { return compute_capability_; }  // 90 for an H100
  // Multiprocessors not used by a reduction, if the difference matters; otherwise 0.
  [[nodiscard]] int multiprocessors_left() const;
  // Whether work enqueued from now on, also into a graph, may overlap a reduction.
  void SetOverlapsReductions(bool overlaps) { overlaps_reductions_ = overlaps; }
  [[nodiscard]] bool overlaps_reductions() const { return overlaps_reductions_; }

  // All kernels of the engine run on compute(); reductions and copies on other streams.
  [[nodiscard]] cudaStream_t compute() const { return compute_.get(); }
  [[nodiscard]] cudaStream_t reduce() const { return reduce_.get(); }  // high priority
  [[nodiscard]] cudaStream_t copy() const { return copy_.get(); }

  [[nodiscard]] const CublasLtApi& cublaslt() const { return *options_.cublaslt; }
  [[nodiscard]] cublasLtHandle_t cublaslt_handle() const { return handle_; }
  // Only for products on compute().
  [[nodiscard]] const DeviceBuffer& workspace() const { return workspace_; }
  [[nodiscard]] MatmulChoices& choices() { return *choices_; }
  // The library of attention and convolutions, started at the first call; null if the options set
  // none. kUnavailable if the start failed, also at later calls.
  Result<DnnLibrary*> dnn();
  // Warnings for users about the kernels in use, each once.
  void AddWarning(std::string warning);
  [[nodiscard]] std::vector<std::string> DrainWarnings() { return std::exchange(warnings_, {}); }

  // For bf16 and fp16 training: `copy` holds the f32 parameters at `master` in 16 bits, kept up to
  // date by the optimiser. Both must outlive the context's kernels.
  void SetHalfCopy(const float* master, std::int64_t elements, void* copy);
  // The copy of the weight at `weight`, or null when there is none.
  [[nodiscard]] const void* HalfCopy(const float* weight) const;

  // Device memory of the context itself: the workspace, without memory allocated by libraries.
  [[nodiscard]] std::int64_t device_bytes() const;

 private:
  explicit CudaContext(const CudaContextOptions& options);

  CudaContextOptions options_;
  int multiprocessors_ = 0;
  int compute_capability_ = 0;
  bool overlaps_reductions_ = false;
  CudaStream compute_;
  CudaStream reduce_;
  CudaStream copy_;
  cublasLtHandle_t handle_ = nullptr;
  DeviceBuffer workspace_;
  std::unique_ptr<MatmulChoices> choices_;
  std::unique_ptr<DnnLibrary> dnn_;
  Status dnn_started_;
  std::vector<std::string> warnings_;
  const float* master_ = nullptr;
  std::int64_t master_elements_ = 0;
  void* half_copy_ = nullptr;
};

// DeviceMemory::Fits() for the current free memory of the current device; call it after CUDA,
// cuBLASLt and NCCL have allocated their memory and before the planned memory is allocated. Other
// processes on the GPU may allocate memory later.
Status FitsOnGpu(const DeviceMemory& memory);
// Free bytes on the current device.
Result<std::int64_t> FreeOnGpu();

}  // namespace gaccd
