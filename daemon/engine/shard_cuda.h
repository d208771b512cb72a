// CudaShards: communication of a sharded optimiser on GPUs: ShardExchange over NCCL. CudaReduction
// reduces the gradients. Everything is enqueued on the compute stream unless the comment says that
// it waits. Functions that return a Status are collective unless the comment says otherwise. Used
// by one thread.
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
#include "daemon/engine/update_graph.h"
#include "daemon/optim/optimizer_cuda.h"
#include "daemon/optim/update_control.h"
#include "daemon/tensor/flat_layout.h"

namespace gaccd {

class CudaShards {
 public:
  struct Options {
    Sharding mode = Sharding::kNone;
    std::int64_t state_buffers = 0;  // state values per trainable element
    bool overlap = true;             // false: ranks share a GPU, see EngineChoice::gpu_sharing
  };

  // Returns null if there would be only one part: then nothing is sharded. `comm` and `waiter` must
  // outlive it. Fails on all ranks or on none.
  static Result<std::unique_ptr<CudaShards>> Make(Communicator& comm, const FlatLayout& layout,
                                                  const Options& options, DeviceWaiter& waiter);

  [[nodiscard]] const ShardPart& own() const { return exchange_->own(); }
  [[nodiscard]] ShardExchange& exchange() { return *exchange_; }

  // Bytes that Allocate() allocates on the GPU. Not collective.
  [[nodiscard]] std::int64_t bytes() const;
  // Also records what an update gathers. Buffers of layout.size() elements; norm_scratch:
  // NormScratchBytes() bytes. All memory must outlive this. Not collective.
  struct Memory {
    float* parameters = nullptr;
    float* gradients = nullptr;
    void* norm_scratch = nullptr;
  };
  Status Allocate(cudaStream_t compute, UpdateGraph& graph, const Memory& memory);

  // Gathers all parts from their owners.
  Status GatherParameters() { return Gather(parameters_, "parameters before they are gathered"); }
  Status GatherGradients() { return Gather(gradients_, "gradients before they are gathered"); }
  // BlockSquares() of the whole gradient; every rank has one part of it.
  Status GatherSquares(const UpdateControl* control);

  // Copies elements [first, first + to.size()) of the whole state to the host; waits.
  Status CopyStateOut(std::string_view what, const float* own, std::int64_t first,
                      std::span<float> to);

  // Runs each kind of collective once, as NCCL allocates memory at the first one. gradients: zeros.
  // Waits.
  Status ExchangeOnce(float* gradients, cudaStream_t stream);

 private:
  CudaShards(const FlatLayout& layout, const Options& options, DeviceWaiter& waiter)
      : size_(layout.size()), options_(options), waiter_(waiter) {}
  Status BeforeCollective(std::string_view what);
  Status Gather(const UpdateGraph::Nodes& nodes, std::string_view what);
  [[nodiscard]] std::span<float> Whole(float* values) const {
    return {values, static_cast<std::size_t>(size_)};
  }
  [[nodiscard]] std::span<double> Squares() const {
    return {SquaresIn(memory_.norm_scratch), static_cast<std::size_t>(exchange_->blocks())};
  }
  // State elements of the own part.
  [[nodiscard]] std::size_t state_elements() const {
    return static_cast<std::size_t>(options_.state_buffers * own().state_elements);
  }

  const std::int64_t size_;
  const Options options_;
  DeviceWaiter& waiter_;
  std::unique_ptr<ShardExchange> exchange_;
  cudaStream_t compute_ = nullptr;
  UpdateGraph* graph_ = nullptr;
  Memory memory_;
  UpdateGraph::Nodes parameters_;
  UpdateGraph::Nodes gradients_;
  UpdateGraph::Nodes squares_;
  // a piece of the state, for checkpoints; allocated early, as allocation would wait for the GPU
  DeviceBuffer piece_;
};

}  // namespace gaccd
