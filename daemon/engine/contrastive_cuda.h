// CudaRows: the representations that this rank computes in an update, and later their gradients, in
// GPU memory. The loss is computed on the host by one core, once per update (ContrastiveWindow),
// while the GPU waits. Used by one thread. Copies are enqueued on `stream`.
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

  void AddMemory(DeviceMemory* memory) const;  // adds what Allocate() will allocate
  Status Allocate();

  // GPU memory for the rows of these samples of the rank. kInternal if they exceed
  // ReplicaOptions::rank_samples.
  Result<float*> At(std::int64_t first, std::int64_t samples);
  // See Backend. parameters: flat, in GPU memory.
  Result<float> FetchRows(std::span<float> rows, const float* parameters, DeviceWaiter& waiter);
  Status SetGradients(std::span<const float> gradients, const ContrastiveSums& sums,
                      DeviceWaiter& waiter);
  // Copies the gradients of the rows of these samples to gradient().
  Status Select(std::int64_t first, std::int64_t samples);

  // GPU memory: f32 [samples, 2 width], and f64 [1], the loss of this rank's samples.
  [[nodiscard]] const float* gradient() const { return gradient_.as<float>(); }
  [[nodiscard]] const double* loss() const { return &words()->loss; }
  // Writes this rank's share of the gradient of log t into the flat gradients.
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
  std::int64_t micro_batch_;  // size of the largest micro-batch
  DeviceBuffer rows_;         // all rows of this rank; after SetGradients() their gradients
  DeviceBuffer gradient_;     // for one micro-batch: read by its graphs
  DeviceBuffer words_;
};

}  // namespace gaccd
