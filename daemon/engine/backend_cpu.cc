#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <new>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "collectives/bucket/bucket_reducer.h"
#include "daemon/config/job_checks.h"
#include "daemon/device/host_buffer.h"
#include "daemon/engine/backend.h"
#include "daemon/engine/gradient_reducer.h"
#include "daemon/engine/pipeline_exchange.h"
#include "daemon/engine/shard_exchange.h"
#include "daemon/optim/digest.h"
#include "daemon/optim/norm.h"
#include "daemon/optim/optimizer.h"
#include "daemon/tensor/shard_grid.h"
#include "daemon/tensor/shard_layout.h"

namespace gaccd {
namespace {

// Reader of this rank's values, for gathers over a pipeline.
PipelineExchange::OwnValues ReaderOfOwnValues(std::span<const float> own) {
  return [own](std::int64_t first, std::span<float> out) {
    std::ranges::copy(own.subspan(static_cast<std::size_t>(first), out.size()), out.begin());
    return Status::Ok();
  };
}

class CpuBackend final : public Backend {
 public:
  CpuBackend(Communicator& comm, const Model& model)
      : comm_(comm), model_(model), contrastive_(model.contrastive()) {}

  Status Create(const EngineOptions& options);

  [[nodiscard]] std::string_view device() const override { return "cpu"; }
  [[nodiscard]] EngineMemory memory() const override {
    return {.host_bytes = replica_->planned_bytes() +
                          static_cast<std::int64_t>(optimizer_->state().size_bytes()),
            .kept_bytes = replica_->kept_bytes(),
            .process_bytes = process_bytes_};
  }
  Result<EngineMemory> PlanMemory(const ReplicaOptions& sizes) override;
  [[nodiscard]] bool immediate() const override { return true; }
  [[nodiscard]] int held_batches() const override { return 0; }
  Result<std::byte*> HostMemory(std::size_t /*bytes*/) override { return nullptr; }

  Status CopyIn(std::string_view /*what*/, EngineBuffer to, std::span<const float> from) override {
    if (to == EngineBuffer::kOptimizer) {
      KeepOwnState(from);
    } else if (pipeline_) {
      CopyInStage(to, from);
    } else {
      std::ranges::copy(from, Buffer(to).begin());
    }
    return Status::Ok();
  }
  Status CopyOut(std::string_view /*what*/, EngineBuffer from, std::int64_t first,
                 std::span<float> to) override {
    if (from == EngineBuffer::kOptimizer) return GatherState(first, to);
    if (shards_ && from == EngineBuffer::kGradients && reduced_) {
      GACCD_RETURN_IF_ERROR(shards_->Gather(Stage(replica_->gradients())));
    }
    if (pipeline_) return pipeline_->GatherFlat(ReaderOfOwnValues(Stage(Buffer(from))), first, to);
    std::ranges::copy(Buffer(from).subspan(static_cast<std::size_t>(first), to.size()), to.begin());
    return Status::Ok();
  }
  [[nodiscard]] std::span<float> host_parameters() override { return replica_->parameters(); }
  Status ParametersChanged() override { return replica_->ParametersChanged(); }
  Status ExchangeAverages() override {
    if (!optimizer_->ExchangeAverages(Own(replica_->parameters()))) return Status::Ok();
    return OwnParametersChanged();
  }
  [[nodiscard]] std::int64_t updates() const override { return optimizer_->updates(); }
  void set_updates(std::int64_t updates) override { optimizer_->set_updates(updates); }

  // One page for all slots, the control itself: updates do not overlap.
  [[nodiscard]] UpdateSlot Slot(std::size_t index) override {
    return {.index = index, .page = control_, .control_words = control_words()};
  }
  Status Begin(const UpdateSlot& slot, double lr) override;
  Status SetInputs(const UpdateSlot& /*slot*/) override { return Status::Ok(); }
  Result<bool> Idle(const UpdateSlot& /*slot*/) override { return true; }
  Status MicroStep(const BatchView& batch, StepPlace place, std::int64_t first,
                   const float* row_gradients) override;
  [[nodiscard]] Status shortage() const override { return replica_->shortage(); }
  Status PrepareSizes(const std::set<std::int64_t>& micro_batches) override {
    return replica_->PrepareSizes(micro_batches);
  }
  Result<UpdateSums> Sums() override { return control_->sums; }
  Status SetSums(const UpdateSums& sums) override {
    control_->sums = sums;
    return Status::Ok();
  }
  Status RunSegment(const BatchView& batch, std::int64_t micro_batch,
                    std::int64_t segment) override;
  Status RunStage(const BatchView& batch, std::int64_t micro_batch, std::int64_t segment) override;
  Result<std::uint64_t> DigestAllStages() override {
    return pipeline_->SumDigests(
        ComputeDigest(pipeline_->Own(replica_->parameters()), pipeline_->stage().own().first));
  }
  Status SumOverRanks(std::int64_t segment) override {
    const MutableBuffer sum = View(replica_->update_sum(segment));
    return comm_.AllReduceSum(sum, sum);
  }
  Status Reduce(const UpdateSlot& slot) override;
  Status Measure() override;
  Status Optimize(const ParameterLimit* limit) override;
  Status End(const UpdateSlot& /*slot*/) override {
    Mark(UpdateMark::kEnd);
    return pipeline_ ? Status::Ok() : reducer_->NextCycle();
  }
  Result<bool> Finished(const UpdateSlot& /*slot*/, bool /*wait*/) override { return true; }
  Result<double> Seconds(const UpdateSlot& /*slot*/, UpdateMark from, UpdateMark to) override {
    return std::chrono::duration<double>(mark(to) - mark(from)).count();
  }

  Status Encode(const BatchView& batch, std::int64_t /*first*/, float* rows) override {
    return replica_->Encode(batch, rows);
  }
  Result<float> FetchRows(std::span<float> /*rows*/) override {
    return parameter(contrastive_->log_scale);
  }
  Status SetRowGradients(std::span<const float> gradients, const ContrastiveSums& sums) override;
  Status SetScaleGradient() override;

  Result<Evaluation> Evaluate(const BatchView& batch) override;

 private:
  using Clock = std::chrono::steady_clock;

  [[nodiscard]] std::span<float> Buffer(EngineBuffer buffer) {
    return buffer == EngineBuffer::kParameters  ? replica_->parameters()
           : buffer == EngineBuffer::kOptimizer ? optimizer_->state()
                                                : replica_->gradients();
  }
  // The part of a buffer of this pipeline stage, and within it the part that this rank updates. The
  // whole buffer without a pipeline and a sharded optimiser.
  [[nodiscard]] std::span<float> Stage(std::span<float> whole) const {
    return pipeline_ ? pipeline_->Own(whole) : whole;
  }
  [[nodiscard]] std::span<float> Own(std::span<float> whole) const {
    return shards_ ? shards_->Own(Stage(whole)) : Stage(whole);
  }
  void CopyInStage(EngineBuffer to, std::span<const float> from);
  void KeepOwnState(std::span<const float> whole);
  Status GatherState(std::int64_t first, std::span<float> out);
  Status CreateBuffers(const EngineOptions& options, std::span<float>* gradients,
                       std::span<float>* parameters);
  Status ReduceGradients();
  Status OwnParametersChanged();
  Status DivideState(Communicator& comm, Sharding mode, const FlatLayout& layout);
  // Memory in which whole buffers are reduced and gathered fastest.
  Result<std::unique_ptr<CommMemory>> Allocate(std::size_t bytes) {
    return shards_ ? shards_->Allocate(bytes) : comm_.Allocate(bytes);
  }
  [[nodiscard]] float& parameter(std::int64_t element) {
    return replica_->parameters()[static_cast<std::size_t>(element)];
  }
  [[nodiscard]] Clock::time_point& mark(UpdateMark mark) {
    return marks_[static_cast<std::size_t>(mark)];
  }
  void Mark(UpdateMark which) { mark(which) = Clock::now(); }
  [[nodiscard]] std::span<double> control_words() {
    return {reinterpret_cast<double*>(control_ + 1), control_word_count_};
  }

  Communicator& comm_;
  const Model& model_;
  const std::optional<ContrastiveModel> contrastive_;
  std::unique_ptr<ShardExchange> shards_;       // null: every rank has all of the optimiser's state
  std::unique_ptr<PipelineExchange> pipeline_;  // null: no stage of one
  ShardPart own_;                               // what this rank updates
  std::int64_t state_buffers_ = 0;
  std::int64_t in_flight_ = 1;
  HostBuffer stage_gradients_;  // of a stage: pages that it does not use take no memory
  std::unique_ptr<CommMemory> gradient_memory_;
  std::unique_ptr<CommMemory> parameter_memory_;  // where they are gathered
  Precision precision_ = Precision::kF32;
  std::unique_ptr<Replica> replica_;
  std::optional<BucketReducer> reducer_;
  bool reduced_ = false;  // the gradients are those of all ranks
  HostBuffer state_memory_;
  std::unique_ptr<Optimizer> optimizer_;
  std::int64_t process_bytes_ = 0;
  std::unique_ptr<std::byte[]> control_memory_;
  UpdateControl* control_ = nullptr;  // followed by the control words
  std::size_t control_word_count_ = 0;
  double lr_ = 0;
  float log_scale_gradient_ = 0;
  std::array<Clock::time_point, 4> marks_;
};

// Shards the optimiser among ranks with the same parameters. If a part would be the whole, nothing
// is sharded.
Status CpuBackend::DivideState(Communicator& comm, Sharding mode, const FlatLayout& layout) {
  if (ShardGrid::Of(mode, CountRanksByNode(comm.topology())).parts() == 1) return Status::Ok();
  GACCD_ASSIGN_OR_RETURN(shards_, ShardExchange::Make(comm, mode, layout, state_buffers_));
  const ShardPart& part = shards_->own();
  own_ = {.first = own_.first + part.first,
          .elements = part.elements,
          .state_first = own_.state_first + part.state_first,
          .state_elements = part.state_elements};
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
    return Status::Ok();  // the replica allocates the parameters so, too
  }
  GACCD_RETURN_IF_ERROR(DivideState(comm_, options.shard, layout));
  GACCD_ASSIGN_OR_RETURN(gradient_memory_, Allocate(bytes));
  *gradients = {static_cast<float*>(gradient_memory_->data()), elements};
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
  if (options.measure_process) {  // no buffer is used yet, but shared ones were zeroed
    GACCD_ASSIGN_OR_RETURN(process_bytes_, ResidentBytes());
    process_bytes_ -= CountResidentBytes(std::as_bytes(gradients)) +
                      CountResidentBytes(std::as_bytes(parameters));
  }
  const FlatLayout& layout = model_.layout();
  OptimizerRanges ranges = OptimizerRanges::Of(layout, own_);
  if (!pipeline_) {
    // No overlap with the backward pass on a CPU: one message.
    GACCD_ASSIGN_OR_RETURN(reducer_,
                           MakeGradientReducer(comm_, layout, View(gradients), kOneBucket));
  }
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
  return Status::Ok();
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
  replica_->BeginSegments();
  Mark(UpdateMark::kBegin);
  return Status::Ok();
}

Status CpuBackend::MicroStep(const BatchView& batch, StepPlace place, std::int64_t /*first*/,
                             const float* row_gradients) {
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
  sums.loss += found.loss_sum;
  sums.divisor += found.divisor;
  return Status::Ok();
}

void CpuBackend::KeepOwnState(std::span<const float> whole) {
  const auto trainable = static_cast<std::size_t>(model_.layout().trainable_size());
  const auto elements = static_cast<std::size_t>(own_.state_elements);
  for (std::size_t buffer = 0; buffer < static_cast<std::size_t>(state_buffers_); ++buffer) {
    const std::size_t first = buffer * trainable + static_cast<std::size_t>(own_.state_first);
    std::ranges::copy(whole.subspan(first, elements),
                      optimizer_->state().subspan(buffer * elements).begin());
  }
}

// Copies elements [first, first + out.size()) of the whole state. In a sharded stage the state of
// the stage is gathered temporarily.
Status CpuBackend::GatherState(std::int64_t first, std::span<float> out) {
  std::span<const float> state = optimizer_->state();
  std::vector<float> of_stage;
  if (shards_ && !pipeline_) return shards_->GatherState(state, first, out);
  if (shards_) {
    of_stage.resize(
        static_cast<std::size_t>(state_buffers_ * pipeline_->stage().own().state_elements));
    GACCD_RETURN_IF_ERROR(shards_->GatherState(state, 0, of_stage));
    state = of_stage;
  }
  if (pipeline_) return pipeline_->GatherState(ReaderOfOwnValues(state), first, out);
  std::ranges::copy(state.subspan(static_cast<std::size_t>(first), out.size()), out.begin());
  return Status::Ok();
}

// Does not touch pages of other stages.
void CpuBackend::CopyInStage(EngineBuffer to, std::span<const float> from) {
  const std::span<float> whole = Buffer(to);
  for (const std::span<float> part : replica_->UsedParts(whole)) {
    std::ranges::copy(
        from.subspan(static_cast<std::size_t>(part.data() - whole.data()), part.size()),
        part.begin());
  }
}

Status CpuBackend::RunStage(const BatchView& batch, std::int64_t micro_batch,
                            std::int64_t segment) {
  using Message = Replica::Message;
  const bool last = pipeline_->stage().last();
  if (segment == 1 && last) return Status::Ok();  // done with the forward
  const std::int64_t place = micro_batch % in_flight_;
  const BatchSize size = segment == 0 ? batch.size() : replica_->StageSize(place);
  if (segment == 2) {  // of weights: nothing is exchanged
    return replica_
        ->RunStage(batch, place, segment, control_->inputs.prediction_weight, micro_batch == 0)
        .status();
  }
  const auto message = [&](Message which) { return replica_->StageMessage(which, size, place); };
  GACCD_ASSIGN_OR_RETURN(const MutableBuffer received,
                         message(segment == 0 ? Message::kReceived : Message::kReceivedGradient));
  GACCD_RETURN_IF_ERROR(pipeline_->Receive(received, segment == 0 ? -1 : 1));
  GACCD_ASSIGN_OR_RETURN(const LossSums found,
                         replica_->RunStage(batch, place, segment,
                                            control_->inputs.prediction_weight, micro_batch == 0));
  if (segment == 0 && !last) {
    GACCD_ASSIGN_OR_RETURN(const MutableBuffer sent, message(Message::kSent));
    return pipeline_->Send(sent, 1);
  }
  UpdateSums& sums = control_->sums;
  sums.loss += found.loss_sum;
  sums.divisor += found.divisor;
  if (last) sums.samples += static_cast<double>(batch.samples);
  GACCD_ASSIGN_OR_RETURN(const MutableBuffer gradient, message(Message::kSentGradient));
  return pipeline_->Send(gradient, -1);
}

Result<Evaluation> CpuBackend::Evaluate(const BatchView& batch) {
  if (!pipeline_) return replica_->Evaluate(batch);
  using Message = Replica::Message;
  const auto message = [&](Message which) {
    return replica_->StageEvaluation(which, batch.size());
  };
  GACCD_ASSIGN_OR_RETURN(const MutableBuffer received, message(Message::kReceived));
  GACCD_RETURN_IF_ERROR(pipeline_->Receive(received, -1));
  GACCD_ASSIGN_OR_RETURN(Evaluation found, replica_->Evaluate(batch));
  GACCD_ASSIGN_OR_RETURN(const MutableBuffer sent, message(Message::kSent));
  GACCD_RETURN_IF_ERROR(pipeline_->Send(sent, 1));
  GACCD_RETURN_IF_ERROR(pipeline_->FlushSends());
  return found;
}

Status CpuBackend::ReduceGradients() {
  if (pipeline_) {
    GACCD_RETURN_IF_ERROR(pipeline_->FlushSends());
    GACCD_RETURN_IF_ERROR(pipeline_->ReduceShared(View(replica_->gradients())));
  }
  const std::span<float> stage = Stage(replica_->gradients());
  if (shards_) return shards_->Reduce(stage);
  if (!pipeline_) return reducer_->ReduceAll();
  return pipeline_->same_stage().AllReduceSum(View(stage), View(stage));
}

Status CpuBackend::Reduce(const UpdateSlot& /*slot*/) {
  Mark(UpdateMark::kComputed);
  if (UpdateSums& sums = control_->sums; control_->inputs.measure_noise != 0 && sums.samples > 0) {
    sums.squares_per_sample = SumOfSquares(replica_->gradients()) / sums.samples;
    sums.ranks = 1;
  }
  GACCD_RETURN_IF_ERROR(ReduceGradients());
  reduced_ = true;
  constexpr std::size_t kSums = sizeof(UpdateSums) / sizeof(double);
  const auto view =
      View(std::span(reinterpret_cast<double*>(&control_->sums), kSums + control_word_count_));
  GACCD_RETURN_IF_ERROR(comm_.AllReduceSum(view, view));
  Mark(UpdateMark::kReduced);
  return Status::Ok();
}

Status CpuBackend::Measure() {
  // Values per micro-batch are stored among the gradients of all parts.
  if (shards_ && model_.micro_values() > 0) {
    GACCD_RETURN_IF_ERROR(shards_->Gather(replica_->gradients()));
  }
  replica_->TakeMicroStatistics();
  const std::span<const float> own = Own(replica_->gradients());
  double squares = 0;
  if (shards_) {
    GACCD_ASSIGN_OR_RETURN(squares, shards_->SumOfSquares(own));
  } else {
    squares = SumOfSquares(own);
  }
  if (pipeline_) {
    GACCD_ASSIGN_OR_RETURN(squares, pipeline_->SumOverStages(squares));
  }
  // An update that would make the running statistics non-finite is not finite.
  const bool finite = replica_->RunningStatisticsStayFinite();
  JudgeUpdate(finite ? squares : NAN, control_);
  return Status::Ok();
}

Status CpuBackend::Optimize(const ParameterLimit* limit) {
  if (control_->verdict.idle != 0) return Status::Ok();
  StepProgress progress;
  if (!shards_ && !pipeline_)
    progress = [this](std::int64_t end) { replica_->ParametersChangedUpTo(end); };
  optimizer_->Step(Own(replica_->parameters()), Own(replica_->gradients()), lr_,
                   control_->verdict.gradient_scale, progress);
  if (limit != nullptr) {
    float& value = parameter(limit->element);
    value = std::min(value, limit->most);
  }
  optimizer_->Average(Own(replica_->parameters()));
  replica_->AddToRunningStatistics();
  return OwnParametersChanged();
}

Status CpuBackend::OwnParametersChanged() {
  if (shards_) GACCD_RETURN_IF_ERROR(shards_->Gather(Stage(replica_->parameters())));
  if (pipeline_) GACCD_RETURN_IF_ERROR(pipeline_->SendShared(View(replica_->parameters())));
  return replica_->ParametersChanged();
}

Status CpuBackend::SetRowGradients(std::span<const float> /*gradients*/,
                                   const ContrastiveSums& sums) {
  control_->sums.loss = sums.loss;
  log_scale_gradient_ = static_cast<float>(sums.log_scale_gradient);
  return Status::Ok();
}

// Of this rank's samples: the reduction adds the shares of the other ranks.
Status CpuBackend::SetScaleGradient() {
  if (!contrastive_->learns_scale) return Status::Ok();
  replica_->gradients()[static_cast<std::size_t>(contrastive_->log_scale)] = log_scale_gradient_;
  return Status::Ok();
}

}  // namespace

Result<BackendPtr> MakeCpuBackend(Communicator& comm, const Model& model,
                                  const EngineOptions& options) {
  // Unsupported arithmetic is an error, never silently replaced.
  GACCD_RETURN_IF_ERROR(CheckCpuNumerics(options.numerics, "this engine runs on CPUs"));
  auto backend = std::make_unique<CpuBackend>(comm, model);
  GACCD_RETURN_IF_ERROR(backend->Create(options));
  return BackendPtr(backend.release());
}

}  // namespace gaccd
