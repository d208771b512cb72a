// CudaContext: what the kernels of one rank share on its GPU: the streams, cuBLASLt with its
// workspace, cuDNN, the choice of algorithms, and copies of the weights in 16 bits. Used by one
// thread, for which it sets the current device.
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

class MatmulChoices;

// How products are computed. Values in memory are f32, bf16 or fp16 as the graph says; sums are
// f32.
struct CudaNumerics {
  bool tf32 = false;           // f32 products may round their inputs to TF32 (10 bits)
  bool deterministic = false;  // the same bits from run to run: no timing, no atomic reductions
  // Take the algorithm that is the fastest here for each product, not the first that cuBLASLt
  // offers and that runs.
  bool time_algorithms = false;
};

// Deterministic wins: a choice by the clock differs from run to run, and from rank to rank, each of
// which times for itself.
[[nodiscard]] constexpr bool IsTimed(const CudaNumerics& numerics) {
  return numerics.time_algorithms && !numerics.deterministic;
}

struct CudaContextOptions {
  int device = 0;
  CudaNumerics numerics;
  // Multiprocessors that reductions take while the backward pass runs; 0: there are none.
  int reduction_multiprocessors = 0;
  // Folder in which the timed choices are kept from run to run; empty: they are not kept.
  std::string choices_folder;
  const CublasLtApi* cublaslt = nullptr;  // not owned; LoadCublasLt() or a stand-in
  DnnOpener dnn = nullptr;                // FindCudnn() or a stand-in; null: none
};

class CudaContext {
 public:
  static constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;  // cuBLASLt's on Hopper

  // kUnavailable: no such GPU, or cuBLASLt is missing or too old; kOs: no memory on the GPU.
  static Result<std::unique_ptr<CudaContext>> Create(const CudaContextOptions& options);
  ~CudaContext();
  CudaContext(const CudaContext&) = delete;
  CudaContext& operator=(const CudaContext&) = delete;

  [[nodiscard]] int device() const { return options_.device; }
  [[nodiscard]] const CudaNumerics& numerics() const { return options_.numerics; }
  [[nodiscard]] int multiprocessors() const { return multiprocessors_; }
  [[nodiscard]] int compute_capability() const { return compute_capability_; }  // 90 for an H100
  // What a reduction leaves of them, if that is worth a difference; else 0.
  [[nodiscard]] int multiprocessors_left() const;
  // Whether what is enqueued from now on, also into a graph, may overlap a reduction.
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
  // The library of attention and convolutions, which starts at the first call; null where the
  // options name none. kUnavailable: it does not start, also at later calls.
  Result<DnnLibrary*> dnn();
  // What people must know of the kernels that were made: each text once.
  void AddWarning(std::string warning);
  [[nodiscard]] std::vector<std::string> TakeWarnings() { return std::exchange(warnings_, {}); }

  // bf16 and fp16 training: the f32 parameters at `master` have a copy of as many elements in that
  // type at `copy`, kept up to date by the optimiser. Both outlive the context's kernels.
  void SetHalfCopy(const float* master, std::int64_t elements, void* copy);
  // The copy of the weight at `weight`, or null when there is none.
  [[nodiscard]] const void* HalfCopyOf(const float* weight) const;

  // Device memory of the context itself: the workspace. What libraries take for themselves is not
  // in it.
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

}  // namespace gaccd
