#include "daemon/engine/planned_memory.h"

#include <algorithm>
#include <numeric>

#include "collectives/base/memory.h"
#include "collectives/comm/communicator.h"
#include "daemon/engine/contrastive_window.h"
#include "daemon/ops/cuda_kernels.h"
#include "daemon/ops/image/conv2d_size.h"
#include "daemon/optim/optimizer.h"
#include "daemon/replica/prepared_graphs.h"
#include "daemon/replica/stage_messages.h"
#include "daemon/tensor/shard_layout.h"

namespace gaccd {
namespace {

// Double buffering: one copy of the inputs is filled while the other is read.
constexpr std::int64_t kInputSlotsOfGpu = 2;

std::int64_t Bytes(std::int64_t floats) {
  return floats * static_cast<std::int64_t>(sizeof(float));
}

Result<EngineMemory> PlanOnCpu(const Model& model, const EngineOptions& options) {
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
  return EngineMemory{.host_bytes = planned->planned_bytes(), .kept_bytes = planned->kept_bytes()};
}

Result<EngineMemory> PlanOnGpu(const Model& model, const EngineOptions& options) {
  const Precision precision = options.numerics.precision;
  PreparedGraphs graphs;
  GACCD_RETURN_IF_ERROR(graphs.Record(model, options.replica, precision, [](Graph& graph) {
    FuseForCuda(graph);
    return CheckCudaKernels(graph);
  }));
  std::int64_t columns = 0;
  graphs.ForEach([&columns](const auto& prepared) {
    columns = std::max(columns, MaxConvColumnBytes(prepared.graph()));
  });
  const std::vector<std::int64_t> inputs = graphs.InputBytes(model.sample());
  const std::int64_t input_bytes = std::reduce(inputs.begin(), inputs.end());
  // Segment by segment, all micro-batches of an update are kept; in a pipeline stage, those in
  // flight.
  std::int64_t batches = model.update_sums() > 0 ? options.replica.micro_steps_per_update : 0;
  std::int64_t elements = model.layout().size();
  std::int64_t messages = 0;
  if (const auto& stage = model.stage()) {
    batches = options.replica.in_flight;
    elements = StagePlaces(model.layout(), *stage).size();
    messages = PlanStageRings(graphs, options.replica.in_flight).bytes();
  }
  const std::vector<std::int64_t> sums = graphs.UpdateSumElements();
  const std::int64_t kept =
      batches * (graphs.kept_bytes() + input_bytes) +
      static_cast<std::int64_t>(sizeof(double)) * std::reduce(sums.begin(), sums.end());
  std::int64_t bytes = 2 * Bytes(elements) + graphs.arena_bytes() + columns + kept + messages +
                       std::max<std::int64_t>(kInputSlotsOfGpu - batches, 0) * input_bytes;
  if (precision != Precision::kF32) bytes += Bytes(elements) / 2;
  if (const auto loss = model.contrastive()) {
    const std::int64_t rows = options.replica.rank_samples + options.replica.largest_micro_batch();
    bytes += Bytes(2 * loss->width * rows);
  }
  return EngineMemory{.device_bytes = bytes, .kept_bytes = kept};
}

}  // namespace

Result<EngineMemory> PlanEngineMemory(const Model& model, const EngineOptions& options, int parts) {
  FlatLayout layout = model.layout();
  if (model.stage()) {
    GACCD_ASSIGN_OR_RETURN(layout, PartLayout(model.layout(), model.stage()->own()));
  }
  const std::int64_t trainable = ShardLayout::Make(layout, parts).max_state_elements();
  const std::int64_t state = Bytes(StateElements(options.optimizer, trainable));
  EngineMemory memory;
  if (const auto loss = model.contrastive()) {
    memory.host_bytes = ContrastiveWindow::PlannedBytes(*loss, options.replica.effective_batch,
                                                        options.replica.rank_samples);
  }
  if (options.choice.device == Device::kCuda) {
    GACCD_ASSIGN_OR_RETURN(const EngineMemory replica, PlanOnGpu(model, options));
    memory.device_bytes = replica.device_bytes + state;
    memory.kept_bytes = replica.kept_bytes;
    return memory;
  }
  GACCD_ASSIGN_OR_RETURN(const EngineMemory replica, PlanOnCpu(model, options));
  memory.host_bytes += replica.host_bytes + state;
  memory.kept_bytes = replica.kept_bytes;
  return memory;
}

}  // namespace gaccd
