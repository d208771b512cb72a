// CudaRows: the representations of an update of this rank, and later their gradients, in GPU
// memory. The loss between them is computed on the host (ContrastiveWindow), by one core, once an
// update; the GPU waits for it. Used by one thread. Copies are enqueued on `stream`.
#pragma once

#include <cstdint>
#include <span>

#include "collectives/base/cuda.h"
#include "daemon/device/cuda/device_memory.h"
#include "daemon/engine/device_waiter.h"
#include "daemon/ops/loss/info_nce.h"
#include "daemon/replica/replica.h"

namespace gaccd {

class CudaRows {
 public:
  CudaRows(const ContrastiveModel& model, const ReplicaOptions& sizes, cudaStream_t stream);

  void AddMemory(DeviceMemory* memory) const;  // what Allocate() takes
  Status Allocate();

  // GPU memory where the rows of these samples of the rank are to be written. kInternal when there
  // are more than ReplicaOptions::rank_samples.
  Result<float*> At(std::int64_t first, std::int64_t samples);
  // As those of Backend. parameters: flat, on the GPU.
  Result<float> FetchRows(std::span<float> rows, const float* parameters, DeviceWaiter& waiter);
  Status SetGradients(std::span<const float> gradients, const ContrastiveSums& sums,
                      DeviceWaiter& waiter);
  // gradient() becomes that of the rows of these samples.
  Status Select(std::int64_t first, std::int64_t samples);

  // GPU memory: f32 [samples, 2 width], and f64 [1], the loss of the own samples.
  [[nodiscard]] const float* gradient() const { return gradient_.as<float>(); }
  [[nodiscard]] const double* loss() const { return &words()->loss; }
  // Puts the own share of the gradient of log t into the flat gradients.
  Status SetScaleGradient(float* gradients);

 private:
  struct Words {
    double loss = 0;
    float scale_gradient = 0;
  };

  [[nodiscard]] Words* words() const { return words_.as<Words>(); }
  [[nodiscard]] std::size_t RowBytes(std::int64_t samples) const {
    return static_cast<std::size_t>(samples * 2 * model_.width) * sizeof(float);
  }
  [[nodiscard]] float* row(std::int64_t sample) const {
    return rows_.as<float>() + sample * 2 * model_.width;
  }
  Status Copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind);

  ContrastiveModel model_;
  cudaStream_t stream_;
  std::int64_t rank_samples_;
  std::int64_t micro_batch_;  // the largest
  DeviceBuffer rows_;         // of all own samples; after SetGradients() their gradients
  DeviceBuffer gradient_;     // of one micro-batch: what its graphs read
  DeviceBuffer words_;
};

}  // namespace gaccd
