#include "daemon/engine/backend_cpu.h"

#include <algorithm>
#include <cmath>
#include <new>
#include <numeric>
#include <utility>

#include "collectives/bucket/bucket_plan.h"
#include "daemon/config/job_checks.h"

namespace gaccd {

static_assert(kMaxExactMicroBatches == kMaxAddends);

// Shards the optimiser among ranks with the same parameters. If there would be only one part,
// nothing is sharded.
Status CpuBackend::DivideState(Communicator& comm, Sharding mode, const FlatLayout& layout) {
  if (ShardGrid::Make(mode, CountRanksByNode(comm.topology())).parts() == 1) return Status::Ok();
  GACCD_ASSIGN_OR_RETURN(shards_, ShardExchange::Make(comm, mode, layout, state_buffers_));
  own_ = shards_->own().ShiftedBy(own_);
  return Status::Ok();
}

Status CpuBackend::CreateBuffers(const EngineOptions& options, std::span<float>* gradients,
                                 std::span<float>* parameters) {
  const FlatLayout& layout = model_.layout();
  const auto elements = static_cast<std::size_t>(layout.size());
  const std::size_t bytes = elements * sizeof(float);
  state_buffers_ = StateElements(options.optimizer, 1);
  own_ = {.elements = layout.size(), .state_elements = layout.trainable_size()};
  if (model_.stage()) {
    in_flight_ = options.replica.in_flight;
    own_ = model_.stage()->own();
    GACCD_ASSIGN_OR_RETURN(
        pipeline_, PipelineExchange::Make(comm_, *model_.stage(), layout, layout, state_buffers_));
    GACCD_ASSIGN_OR_RETURN(const FlatLayout of_stage, PartLayout(layout, own_));
    GACCD_RETURN_IF_ERROR(DivideState(pipeline_->same_stage(), options.shard, of_stage));
    GACCD_ASSIGN_OR_RETURN(stage_gradients_, HostBuffer::Allocate(bytes, "gradients"));
    *gradients = {reinterpret_cast<float*>(stage_gradients_.data()), elements};
    return Status::Ok();  // the replica allocates the parameters
  }
  GACCD_RETURN_IF_ERROR(DivideState(comm_, options.shard, layout));
  GACCD_ASSIGN_OR_RETURN(gradient_memory_, Allocate(bytes));
  *gradients = {static_cast<float*>(gradient_memory_->data()), elements};
  if (options.replica.any_split) {
    const std::size_t bins = kFloatBins * elements + 2 * kDoubleBins;
    GACCD_ASSIGN_OR_RETURN(bin_memory_, Allocate(bins * sizeof(double)));
    bins_ = {static_cast<double*>(bin_memory_->data()), bins};
  }
  if (!shards_) return Status::Ok();
  GACCD_ASSIGN_OR_RETURN(parameter_memory_, Allocate(bytes));
  *parameters = {static_cast<float*>(parameter_memory_->data()), elements};
  return Status::Ok();
}

Status CpuBackend::Create(const EngineOptions& options) {
  std::span<float> gradients;
  std::span<float> parameters;
  GACCD_RETURN_IF_ERROR(CreateBuffers(options, &gradients, &parameters));
  precision_ = options.numerics.precision;
  GACCD_ASSIGN_OR_RETURN(replica_, Replica::Create(model_, gradients, options.replica, precision_,
                                                   &comm_, parameters));
  if (!bins_.empty()) replica_->SetGradientBins(gradient_bins());
  if (options.measure_process) {  // no buffer is used yet, but shared ones were zeroed
    GACCD_ASSIGN_OR_RETURN(process_bytes_, ResidentBytes());
    process_bytes_ -= CountResidentBytes(std::as_bytes(gradients)) +
                      CountResidentBytes(std::as_bytes(parameters)) +
                      CountResidentBytes(std::as_bytes(bins_));
  }
  const FlatLayout& layout = model_.layout();
  OptimizerRanges ranges = OptimizerRanges::Make(layout, own_);
  const auto state = static_cast<std::size_t>(StateElements(options.optimizer, ranges.elements()));
  GACCD_ASSIGN_OR_RETURN(state_memory_,
                         HostBuffer::Allocate(state * sizeof(float), "optimiser state"));
  GACCD_ASSIGN_OR_RETURN(optimizer_,
                         MakeOptimizer(options.optimizer, std::move(ranges),
                                       {reinterpret_cast<float*>(state_memory_.data()), state}));
  control_word_count_ = options.control_word_count;
  control_memory_ =
      std::make_unique<std::byte[]>(sizeof(UpdateControl) + control_word_count_ * sizeof(double));
  control_ = new (control_memory_.get()) UpdateControl;
  return RecordUpdate();
}

Status CpuBackend::RecordUpdate() {
  GACCD_RETURN_IF_ERROR(RecordReduce());
  std::size_t begin = graph_.size();
  if (shards_) {
    GACCD_RETURN_IF_ERROR(shards_->RecordGather(graph_, Stage(replica_->gradients())));
    gather_gradients_ = graph_.Since(begin);
    squares_.resize(static_cast<std::size_t>(shards_->blocks()));
    begin = graph_.size();
    GACCD_RETURN_IF_ERROR(shards_->RecordGatherSquares(graph_, squares_));
    gather_squares_ = graph_.Since(begin);
  }
  if (pipeline_) {
    by_stage_.resize(pipeline_->stage().stages());
    begin = graph_.size();
    GACCD_RETURN_IF_ERROR(pipeline_->RecordGatherByStage(graph_, View(std::span(by_stage_))));
    gather_stages_ = graph_.Since(begin);
  }
  begin = graph_.size();
  if (shards_) {
    GACCD_RETURN_IF_ERROR(shards_->RecordGather(graph_, Stage(replica_->parameters())));
  }
  if (pipeline_) {
    GACCD_RETURN_IF_ERROR(pipeline_->RecordSendShared(graph_, View(replica_->parameters())));
  }
  parameters_ = graph_.Since(begin);
  return Status::Ok();
}

Status CpuBackend::RecordReduce() {
  const MutableBuffer whole = View(replica_->gradients());
  MutableBuffer own = View(Stage(replica_->gradients()));
  if (pipeline_) GACCD_RETURN_IF_ERROR(pipeline_->RecordReduceShared(graph_, whole));
  if (shards_) {
    GACCD_RETURN_IF_ERROR(shards_->RecordReduce(graph_, Stage(replica_->gradients())));
  } else if (!bins_.empty()) {
    const MutableBuffer bins = View(bins_);
    GACCD_RETURN_IF_ERROR(graph_.AllReduceSum(comm_, {&bins, 1}));
  } else {
    Communicator& ranks = pipeline_ ? pipeline_->same_stage() : comm_;
    if (!pipeline_) {  // without the padding at the end
      GACCD_ASSIGN_OR_RETURN(const BucketPlan plan, GradientBuckets(model_.layout(), kOneBucket));
      own.count = plan.buckets().front().elements;
    }
    GACCD_RETURN_IF_ERROR(graph_.AllReduceSum(ranks, {&own, 1}));
  }
  constexpr std::size_t kSums = sizeof(UpdateSums) / sizeof(double);
  const auto counts =
      View(std::span(reinterpret_cast<double*>(&control_->sums), kSums + control_word_count_));
  GACCD_RETURN_IF_ERROR(graph_.AllReduceSum(comm_, {&counts, 1}));
  reduce_ = graph_.Since(0);
  return Status::Ok();
}

Status CpuBackend::SumOverRanks(std::int64_t segment) {
  if (std::ssize(statistics_) == segment) {
    const MutableBuffer sum = View(replica_->update_sum(segment));
    const std::size_t begin = graph_.size();
    GACCD_RETURN_IF_ERROR(graph_.AllReduceSum(comm_, {&sum, 1}));
    statistics_.push_back(graph_.Since(begin));
  }
  GACCD_RETURN_IF_ERROR(graph_.Run(statistics_[static_cast<std::size_t>(segment)]));
  replica_->UpdateSumReduced(segment);
  return Status::Ok();
}

void CpuBackend::AddLossToBins(const LossSums& sums) {
  if (bins_.empty()) return;
  bins_used_ = true;  // the replica has added gradients
  const std::array values = {sums.loss_sum, sums.divisor};
  AddToBins(std::span<const double>(values), loss_bins());
}

void CpuBackend::ReadReducedBins() {
  if (bins_.empty()) return;
  MoveBins(gradient_bins(), replica_->gradients());
  bins_used_ = false;
  std::array<double, 2> sums{};
  ReadBins(loss_bins(), sums);
  control_->sums.loss = sums[0];
  control_->sums.divisor = sums[1];
}

Result<EngineMemory> CpuBackend::PlanMemory(const ReplicaOptions& sizes) {
  ReplicaOptions planned = sizes;
  planned.only_plan = true;
  GACCD_ASSIGN_OR_RETURN(const auto other, Replica::Create(model_, replica_->gradients(), planned,
                                                           precision_, &comm_));
  EngineMemory all = memory();
  all.host_bytes += other->planned_bytes() - replica_->planned_bytes();
  all.kept_bytes = other->kept_bytes();
  return all;
}

Status CpuBackend::Begin(const UpdateSlot& slot, double lr) {
  lr_ = lr;
  replica_->SetUpdate(slot.page->inputs.update);
  control_->sums = {};
  reduced_ = false;
  if (bins_used_) std::ranges::fill(gradient_bins(), 0.0);  // not reduced, or by Probe()
  if (!bins_.empty()) std::ranges::fill(loss_bins(), 0.0);
  bins_used_ = false;
  graph_.NextUpdate();
  replica_->BeginSegments();
  Mark(UpdateMark::kBegin);
  return Status::Ok();
}

Status CpuBackend::MicroStep(const BatchView& batch, MicroStepPosition place,
                             std::int64_t /*first*/, const float* row_gradients) {
  UpdateSums& sums = control_->sums;
  reduced_ = false;
  if (contrastive_) {
    GACCD_RETURN_IF_ERROR(replica_->Replay(batch, row_gradients, place.first));
    sums.samples += static_cast<double>(batch.samples);
    sums.divisor += static_cast<double>(batch.samples);
    return place.last ? SetScaleGradient() : Status::Ok();
  }
  GACCD_ASSIGN_OR_RETURN(
      const LossSums found,
      replica_->MicroStep(batch, control_->inputs.prediction_weight, place.first));
  AddLossToBins(found);
  sums.samples += static_cast<double>(batch.samples);
  sums.loss += found.loss_sum;
  sums.divisor += found.divisor;
  return Status::Ok();
}

Status CpuBackend::RunSegment(const BatchView& batch, std::int64_t micro_batch,
                              std::int64_t segment) {
  UpdateSums& sums = control_->sums;
  if (segment == 0) sums.samples += static_cast<double>(batch.samples);
  GACCD_ASSIGN_OR_RETURN(
      const LossSums found,
      replica_->RunSegment(batch, micro_batch, segment, control_->inputs.prediction_weight));
  AddLossToBins(found);
  sums.loss += found.loss_sum;
  sums.divisor += found.divisor;
  return Status::Ok();
}

Status CpuBackend::Reduce(const UpdateSlot& /*slot*/) {
  Mark(UpdateMark::kComputed);
  if (UpdateSums& sums = control_->sums; control_->inputs.measure_noise != 0 && sums.samples > 0) {
    sums.squares_per_sample = SumOfSquares(replica_->gradients()) / sums.samples;
    sums.ranks = 1;
  }
  if (pipeline_) GACCD_RETURN_IF_ERROR(pipeline_->FlushSends());
  GACCD_RETURN_IF_ERROR(graph_.Run(reduce_));
  ReadReducedBins();
  reduced_ = true;
  Mark(UpdateMark::kReduced);
  return Status::Ok();
}

// The same bits on all ranks, sharded or not: blocks and stages are added in their order. The owner
// of a non-finite parameter makes it known to all ranks through the sum.
Result<double> CpuBackend::SumSquares() {
  const std::span<const float> own = Own(replica_->gradients());
  double squares = 0;
  if (shards_) {
    BlockSquares(own, shards_->OwnSquares(squares_));
    if (optimizer_->parameters_not_finite()) std::ranges::fill(shards_->OwnSquares(squares_), NAN);
    GACCD_RETURN_IF_ERROR(graph_.Run(gather_squares_));
    squares = SumInOrder(squares_);
  } else {
    squares = optimizer_->parameters_not_finite() ? NAN : SumOfSquares(own);
  }
  if (!pipeline_) return squares;
  by_stage_[pipeline_->stage().stage] = squares;
  GACCD_RETURN_IF_ERROR(graph_.Run(gather_stages_));
  return std::accumulate(by_stage_.begin(), by_stage_.end(), 0.0);
}

Status CpuBackend::Measure() {
  // Values per micro-batch are stored among the gradients of all parts.
  if (shards_ && model_.micro_values() > 0) GACCD_RETURN_IF_ERROR(graph_.Run(gather_gradients_));
  replica_->MoveMicroStatistics();
  GACCD_ASSIGN_OR_RETURN(const double squares, SumSquares());
  // An update that would make the running statistics non-finite is not finite.
  const bool finite = replica_->RunningStatisticsStayFinite();
  DecideUpdate(finite ? squares : NAN, control_);
  return Status::Ok();
}

Status CpuBackend::Optimize(const ParameterLimit* limit) {
  if (control_->decision.idle != 0) return Status::Ok();
  StepProgress progress;
  if (!shards_ && !pipeline_)
    progress = [this](std::int64_t end) { replica_->ParametersChangedUpTo(end); };
  optimizer_->Step(Own(replica_->parameters()), Own(replica_->gradients()), lr_,
                   control_->decision.gradient_scale, progress);
  control_->parameters_not_finite = optimizer_->parameters_not_finite() ? 1 : 0;
  if (limit != nullptr) {
    float& value = parameter(limit->element);
    value = std::min(value, limit->max_value);
  }
  optimizer_->Average(Own(replica_->parameters()));
  replica_->AddToRunningStatistics();
  return OwnParametersChanged();
}

Status CpuBackend::OwnParametersChanged() {
  GACCD_RETURN_IF_ERROR(graph_.Run(parameters_));
  return replica_->ParametersChanged();
}

Status CpuBackend::SetRowGradients(std::span<const float> /*gradients*/,
                                   const ContrastiveSums& sums) {
  control_->sums.loss = sums.loss;
  log_scale_gradient_ = static_cast<float>(sums.log_scale_gradient);
  return Status::Ok();
}

// The share of this rank's samples: the reduction adds those of the other ranks.
Status CpuBackend::SetScaleGradient() {
  if (!contrastive_->learns_scale) return Status::Ok();
  replica_->gradients()[static_cast<std::size_t>(contrastive_->log_scale)] = log_scale_gradient_;
  return Status::Ok();
}

Result<BackendPtr> MakeCpuBackend(Communicator& comm, const Model& model,
                                  const EngineOptions& options) {
  // Unsupported arithmetic is an error, never silently replaced.
  GACCD_RETURN_IF_ERROR(CheckCpuNumerics(options.numerics, "this engine runs on CPUs"));
  auto backend = std::make_unique<CpuBackend>(comm, model);
  GACCD_RETURN_IF_ERROR(backend->Create(options));
  return BackendPtr(backend.release());
}

}  // namespace gaccd
