// CudaReplica: updates whose graphs have sums over the update and run segment by segment, and
// running statistics.
#include <numeric>
#include <utility>

#include "collectives/base/strings.h"
#include "daemon/replica/replica_cuda.h"

namespace gaccd {
namespace {

constexpr auto kDouble = static_cast<std::int64_t>(sizeof(double));

}  // namespace

std::int64_t CudaReplica::kept_bytes() const {
  return kept_ * (graphs_.kept_bytes() + slot_bytes_) +
         kDouble * std::reduce(sums_.begin(), sums_.end());
}

std::int64_t CudaReplica::StatisticsBytes() const {
  std::int64_t bytes = kDouble * std::reduce(sums_.begin(), sums_.end());
  for (const nn::RunningUpdate& running : model_.running_statistics()) {
    const std::int64_t channels = model_.layout().entries()[running.mean].elements;
    bytes += kDouble * (2 * channels + 1) + static_cast<std::int64_t>(sizeof(RunningLayer));
  }
  return bytes;
}

RunningLayer CudaReplica::MakeRunningLayer(const nn::RunningUpdate& running,
                                           const CudaReplicaBuffers& buffers,
                                           const Executor& executor) {
  const auto place = [this](float* flat, nn::ParameterIndex index) {
    return flat + model_.layout().entries()[index].offset;
  };
  RunningLayer layer{.channels = model_.layout().entries()[running.mean].elements,
                     .momentum = running.momentum,
                     .mean_gradient = place(buffers.gradients, running.mean),
                     .variance_gradient = place(buffers.gradients, running.variance),
                     .updates_gradient = place(buffers.gradients, running.updates),
                     .mean = place(buffers.parameters, running.mean),
                     .variance = place(buffers.parameters, running.variance),
                     .updates = place(buffers.parameters, running.updates)};
  if (running.sums != nn::kNoValue) {
    const auto sum = static_cast<std::int64_t>(executor.FindUpdateSum(running.sums));
    layer.sums = static_cast<const double*>(update_sum(sum).data);
    layer.runs = sums_[static_cast<std::size_t>(sum)] / (2 * layer.channels + 1);
  }
  return layer;
}

Status CudaReplica::AttachStatistics(const CudaReplicaBuffers& buffers) {
  if (graphs_.all<TrainingGraph>().empty()) return Status::Ok();  // only evaluations
  const auto sums = static_cast<std::size_t>(std::reduce(sums_.begin(), sums_.end()));
  GACCD_ASSIGN_OR_RETURN(update_sums_, DeviceBuffer::Allocate(sums * sizeof(double), "statistics"));
  const auto& graph = graphs_.all<TrainingGraph>().begin()->second;
  std::vector<RunningLayer> layers;
  std::size_t found = 0;
  for (const nn::RunningUpdate& running : graph.ids.running) {
    layers.push_back(MakeRunningLayer(running, buffers, *graph.executor));
    found += static_cast<std::size_t>(2 * layers.back().channels + 1);
  }
  GACCD_ASSIGN_OR_RETURN(running_found_,
                         DeviceBuffer::Allocate(found * sizeof(double), "statistics"));
  auto* next = running_found_.as<double>();
  for (RunningLayer& layer : layers) {
    layer.found = std::exchange(next, next + 2 * layer.channels + 1);
  }
  const std::size_t bytes = layers.size() * sizeof(RunningLayer);
  GACCD_ASSIGN_OR_RETURN(running_layers_, DeviceBuffer::Allocate(bytes, "statistics"));
  if (bytes == 0) return Status::Ok();
  return CudaStatus(
      cudaMemcpy(running_layers_.data(), layers.data(), bytes, cudaMemcpyHostToDevice),
      "statistics");
}

MutableBuffer CudaReplica::update_sum(std::int64_t sum) const {
  const auto first = std::reduce(sums_.begin(), sums_.begin() + sum);
  return {update_sums_.as<double>() + first,
          static_cast<std::size_t>(sums_[static_cast<std::size_t>(sum)]), DType::kF64,
          MemoryKind::kCuda};
}

Status CudaReplica::BeginSegments() {
  if (update_sums_.bytes() == 0) return Status::Ok();
  return CudaStatus(
      cudaMemsetAsync(update_sums_.data(), 0, update_sums_.bytes(), context_.compute()),
      "sums over the update");
}

// Recording pays off for short kernels, as a launch takes a few microseconds on the host. Recorded
// segments take GPU memory that is not planned: if it is short, segments are not recorded.
bool CudaReplica::RecordsSegments() const {
  constexpr std::int64_t kMost = 1024;
  const std::int64_t sizes = std::ssize(graphs_.all<TrainingGraph>());
  return segments_fit_ && !model_.has_collectives() &&
         (model_.update_sums() + 1) * input_slots() * sizes <= kMost;
}

Result<CudaReplica::LossPlace> CudaReplica::RunSegment(BatchSize size, std::int64_t micro_batch,
                                                       int slot, std::int64_t segment) {
  const SegmentKey key{size, micro_batch, slot, segment};
  if (!RecordsSegments()) return EnqueueSegment(key);
  auto found = segments_.find(key);
  if (found == segments_.end()) {
    LossPlace loss;
    auto graph = CudaGraph::Capture(context_.compute(), [&]() -> Status {
      GACCD_ASSIGN_OR_RETURN(loss, EnqueueSegment(key));
      return Status::Ok();
    });
    if (!graph.ok() && graph.status().kind() == ErrorKind::kOs) {
      // clears the error: nothing has run, and the next call must not fail
      (void)cudaGetLastError();
      segments_fit_ = false;
      return EnqueueSegment(key);
    }
    GACCD_RETURN_IF_ERROR(graph.status());
    found = segments_.emplace(key, RecordedSegment{*std::move(graph), loss}).first;
  }
  const auto& [graph, loss] = found->second;
  if (graph.nodes() > 0) GACCD_RETURN_IF_ERROR(graph.Launch(context_.compute()));
  return loss;
}

Result<CudaReplica::LossPlace> CudaReplica::EnqueueSegment(const SegmentKey& key) {
  const auto& [size, micro_batch, slot, segment] = key;
  GACCD_ASSIGN_OR_RETURN(auto* graph, graphs_.Find<TrainingGraph>(size));
  Executor& executor = *graph->executor;
  executor.Attach(arena_.data(), scratch_.data(),
                  kept_arena_.as<std::byte>() + graphs_.kept_bytes() * micro_batch);
  Bind(executor, graph->inputs, static_cast<std::size_t>(slot));
  cudaStream_t stream = context_.compute();
  if (segment > 0) {
    const MutableBuffer sum = update_sum(segment - 1);
    double* const to = executor.update_sum(static_cast<std::size_t>(segment - 1)).all;
    GACCD_RETURN_IF_ERROR(
        CudaStatus(cudaMemcpyAsync(to, sum.data, sum.bytes(), cudaMemcpyDeviceToDevice, stream),
                   "sums over the update"));
  }
  GACCD_RETURN_IF_ERROR(
      executor.RunSegment(static_cast<std::size_t>(segment), /*first=*/micro_batch == 0));
  if (segment == model_.update_sums()) return StepLoss(size);
  const MutableBuffer sum = update_sum(segment);
  GACCD_RETURN_IF_ERROR(
      EnqueueAddSums(stream, executor.update_sum(static_cast<std::size_t>(segment)).own,
                     static_cast<std::int64_t>(sum.count), static_cast<double*>(sum.data)));
  return LossPlace{};
}

Result<CudaReplica::LossPlace> CudaReplica::StepLoss(BatchSize size) {
  GACCD_ASSIGN_OR_RETURN(auto* graph, graphs_.Find<TrainingGraph>(size));
  const auto& [ids, inputs, executor] = *graph;
  return LossPlace{.loss_sum = executor->Output<double>(ids.loss_sum),
                   .divisor = ids.divisor ? executor->Output<double>(*ids.divisor) : nullptr};
}

Status CudaReplica::CollectRunningStatistics() {
  const std::size_t layers = running_layers_.bytes() / sizeof(RunningLayer);
  if (layers == 0) return Status::Ok();
  return EnqueueCollectRunning(context_.compute(), running_layers_.as<RunningLayer>(), layers);
}

Status CudaReplica::AddToRunningStatistics(const std::int32_t* idle) {
  const std::size_t layers = running_layers_.bytes() / sizeof(RunningLayer);
  if (layers == 0) return Status::Ok();
  return EnqueueAddToRunning(context_.compute(), running_layers_.as<RunningLayer>(), layers, idle);
}

}  // namespace gaccd
