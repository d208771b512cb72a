#include "daemon/engine/planned_memory.h"

#include <numeric>

#include "collectives/comm/communicator.h"
#include "daemon/device/host_buffer.h"
#include "daemon/engine/contrastive_window.h"
#include "daemon/model/prepared_graphs.h"
#include "daemon/ops/cuda_kernels.h"
#include "daemon/optim/optimizer.h"
#include "daemon/tensor/shard_layout.h"

namespace gaccd {
namespace {

// Of two copies of the inputs, one is filled while the other is read.
constexpr std::int64_t kInputSlotsOfGpu = 2;

std::int64_t Bytes(std::int64_t floats) {
  return floats * static_cast<std::int64_t>(sizeof(float));
}

Result<std::int64_t> OnCpu(const Model& model, const EngineOptions& options) {
  const auto elements = static_cast<std::size_t>(model.layout().size());
  GACCD_ASSIGN_OR_RETURN(const HostBuffer memory,
                         HostBuffer::Allocate(elements * sizeof(float), "gradients"));
  const std::span gradients(reinterpret_cast<float*>(memory.data()), elements);
  const auto comm = MakeSingle();
  ReplicaOptions replica = options.replica;
  replica.only_plan = true;
  GACCD_ASSIGN_OR_RETURN(
      const auto planned,
      Replica::Create(model, gradients, replica, options.numerics.precision, comm.get()));
  return planned->planned_bytes();
}

Result<std::int64_t> OnGpu(const Model& model, const EngineOptions& options) {
  const Precision precision = options.numerics.precision;
  PreparedGraphs graphs;
  GACCD_RETURN_IF_ERROR(graphs.Record(model, options.replica, precision, [](Graph& graph) {
    FuseForCuda(graph);
    return CheckCudaKernels(graph);
  }));
  const std::vector<std::int64_t> inputs = graphs.InputBytes(model.sample());
  std::int64_t bytes = 2 * Bytes(model.layout().size()) + graphs.arena_bytes() +
                       kInputSlotsOfGpu * std::reduce(inputs.begin(), inputs.end());
  if (precision != Precision::kF32) bytes += Bytes(model.layout().size()) / 2;
  if (const auto loss = model.contrastive()) {
    const auto& sizes = options.replica.micro_batches;
    const std::int64_t rows = options.replica.rank_samples + (sizes.empty() ? 0 : *sizes.rbegin());
    bytes += Bytes(2 * loss->width * rows);
  }
  return bytes;
}

}  // namespace

Result<EngineMemory> PlanEngineMemory(const Model& model, const EngineOptions& options, int parts) {
  const std::int64_t trainable = ShardLayout::Make(model.layout(), parts).most_state_elements();
  const std::int64_t state = Bytes(StateElements(options.optimizer, trainable));
  EngineMemory memory;
  if (const auto loss = model.contrastive()) {
    memory.host_bytes =
        ContrastiveWindow(*loss, options.replica.effective_batch, options.replica.rank_samples)
            .planned_bytes();
  }
  if (options.choice.device == Device::kCuda) {
    GACCD_ASSIGN_OR_RETURN(memory.device_bytes, OnGpu(model, options));
    memory.device_bytes += state;
    return memory;
  }
  GACCD_ASSIGN_OR_RETURN(const std::int64_t replica, OnCpu(model, options));
  memory.host_bytes += replica + state;
  return memory;
}

}  // namespace gaccd
