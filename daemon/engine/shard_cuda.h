// CudaShards: what the ranks exchange where the optimiser is sharded, on GPUs: ShardExchange over
// NCCL. The reduction of the gradients: CudaReduction. Everything is enqueued on the stream of the
// computation, unless it says that it waits. What returns a Status is collective, unless it says
// that it is not. Used by one thread.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "collectives/base/cuda.h"
#include "collectives/base/result.h"
#include "collectives/comm/communicator.h"
#include "daemon/config/job.h"
#include "daemon/engine/device_waiter.h"
#include "daemon/engine/shard_exchange.h"
#include "daemon/optim/update_control.h"
#include "daemon/tensor/flat_layout.h"

namespace gaccd {

class CudaShards {
 public:
  struct Options {
    Sharding mode = Sharding::kNone;
    std::int64_t state_buffers = 0;  // values of state for each trainable element
    bool overlap = true;             // false: ranks share a GPU, see EngineChoice::gpu_sharing
  };

  // Null where a part would be all of it: then nothing is divided. `comm` and `waiter` outlive it.
  // Fails on all ranks, or on none.
  static Result<std::unique_ptr<CudaShards>> Make(Communicator& comm, const FlatLayout& layout,
                                                  const Options& options, DeviceWaiter& waiter);

  [[nodiscard]] const ShardPart& own() const { return exchange_->own(); }
  [[nodiscard]] ShardExchange& exchange() { return *exchange_; }

  // Memory that Allocate() takes on the GPU. Not collective.
  [[nodiscard]] std::int64_t bytes() const;
  Status Allocate(cudaStream_t compute);

  // All parts of parameters or gradients, layout.size() elements, become those of their owners.
  Status Gather(float* whole);
  // SquaresOfBlocks() of the whole gradient, of which every rank has its own part. scratch: of
  // MeasureGradient().
  Status GatherSquares(const float* gradients, const UpdateControl* control, void* scratch);

  // Elements [first, first + to.size()) of the whole state to the host; waits.
  Status CopyStateOut(std::string_view what, const float* own, std::int64_t first,
                      std::span<float> to);

  // NCCL takes memory at the first collective of each kind. gradients: zeros. Waits.
  Status ExchangeOnce(float* gradients, cudaStream_t stream);

 private:
  CudaShards(const FlatLayout& layout, const Options& options, DeviceWaiter& waiter)
      : size_(layout.size()), options_(options), waiter_(waiter) {}
  Status BeforeCollective(std::string_view what);
  [[nodiscard]] std::span<float> Whole(float* values) const {
    return {values, static_cast<std::size_t>(size_)};
  }
  // Elements of the own part of the state.
  [[nodiscard]] std::size_t state_elements() const {
    return static_cast<std::size_t>(options_.state_buffers * own().state_elements);
  }

  const std::int64_t size_;
  const Options options_;
  DeviceWaiter& waiter_;
  std::unique_ptr<ShardExchange> exchange_;
  cudaStream_t compute_ = nullptr;
  DeviceBuffer piece_;  // of the state, for checkpoints: memory taken then would wait for the GPU
};

}  // namespace gaccd
