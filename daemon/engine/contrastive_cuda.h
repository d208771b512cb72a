// CudaContrast: what ContrastiveWindow is, for a model on a GPU. Rows and their gradients stay in
// GPU memory; the loss between them is computed on the host, by one core, once an update: own
// samples x all samples x width products, for the loss and for both gradients. The GPU waits for
// it. Used by one thread. Copies are enqueued on `stream`.
#pragma once

#include <cstdint>

#include "collectives/base/cuda.h"
#include "collectives/comm/communicator.h"
#include "daemon/device/cuda/device_memory.h"
#include "daemon/engine/contrastive_window.h"
#include "daemon/engine/device_waiter.h"
#include "daemon/model/replica.h"
#include "daemon/optim/update_control.h"

namespace gaccd {

class CudaContrast {
 public:
  CudaContrast(const ContrastiveModel& model, const ReplicaOptions& sizes, cudaStream_t stream);

  void AddMemory(DeviceMemory* memory) const;  // what Allocate() takes
  [[nodiscard]] std::int64_t host_bytes() const { return window_.planned_bytes(); }
  Status Allocate();

  void Begin();
  // GPU memory where the rows of the next `samples` samples are to be written. kInternal when more
  // come than ReplicaOptions::rank_samples.
  Result<float*> Append(std::int64_t samples);
  // Collective, also for ranks without samples. Waits for the rows. parameters: flat, on the GPU.
  Status ComputeContrastiveLoss(Communicator& comm, DeviceWaiter& waiter, const float* parameters,
                                double loss_scale);
  // gradient() becomes that of the rows of the next `samples` samples.
  Status Next(std::int64_t samples);

  // GPU memory: f32 [samples, 2 width], and f64 [1], the loss of the own samples.
  [[nodiscard]] const float* gradient() const { return gradient_.as<float>(); }
  [[nodiscard]] const double* loss() const { return &words()->loss; }
  // Puts the own share of the gradient of log t into the flat gradients.
  Status SetScaleGradient(float* gradients);
  // As CLIP, after the step: log t stays at or below its limit.
  Status LimitScale(const UpdateControl* control, float* parameters);

 private:
  struct Words {
    double loss = 0;
    float scale_gradient = 0;
  };

  [[nodiscard]] Words* words() const { return words_.as<Words>(); }
  [[nodiscard]] std::int64_t row() const { return 2 * window_.model().width; }  // elements
  [[nodiscard]] std::size_t RowBytes(std::int64_t samples) const {
    return static_cast<std::size_t>(samples * row()) * sizeof(float);
  }
  Status Copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind);

  ContrastiveWindow window_;
  cudaStream_t stream_;
  std::int64_t rank_samples_;
  std::int64_t micro_batch_;  // the largest
  std::int64_t encoded_ = 0;  // samples
  std::int64_t next_ = 0;     // sample
  DeviceBuffer rows_;         // of all own samples; after ComputeContrastiveLoss() their gradients
  DeviceBuffer gradient_;     // of one micro-batch: what its graphs read
  DeviceBuffer words_;
};

}  // namespace gaccd
