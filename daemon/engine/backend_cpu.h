// CpuBackend: a Backend whose calls compute on this thread and have finished when they return. One
// all-reduce sums all gradients, as a host communicator cannot send while this thread computes.
#pragma once

#include <array>
#include <chrono>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "collectives/base/memory.h"
#include "collectives/base/time.h"
#include "daemon/engine/backend.h"
#include "daemon/engine/pipeline_exchange.h"
#include "daemon/engine/shard_exchange.h"
#include "daemon/engine/update_graph.h"
#include "daemon/optim/measure.h"
#include "daemon/optim/optimizer.h"
#include "daemon/tensor/reproducible_sum.h"
#include "daemon/tensor/shard_layout.h"

namespace gaccd {

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

  Status CopyIn(std::string_view what, EngineBuffer to, std::span<const float> from) override;
  Status CopyOut(std::string_view what, EngineBuffer from, std::int64_t first,
                 std::span<float> to) override;
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
  Status MicroStep(const BatchView& batch, MicroStepPosition place, std::int64_t first,
                   const float* row_gradients) override;
  [[nodiscard]] Status allocation_error() const override { return replica_->allocation_error(); }
  Status PrepareSizes(const std::set<std::int64_t>& micro_batches, Recompute recompute) override {
    return replica_->PrepareSizes(micro_batches, recompute);
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
  Status SumOverRanks(std::int64_t segment) override;
  Status Reduce(const UpdateSlot& slot) override;
  Status Measure() override;
  Status Optimize(const ParameterLimit* limit) override;
  Status End(const UpdateSlot& /*slot*/) override {
    Mark(UpdateMark::kEnd);
    return Status::Ok();
  }
  Result<bool> Finished(const UpdateSlot& /*slot*/, bool /*wait*/) override { return true; }
  Result<double> Seconds(const UpdateSlot& /*slot*/, UpdateMark from, UpdateMark to) override {
    return SecondsSince(mark(from), mark(to));
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
  // Record what an update sends.
  Status RecordUpdate();
  Status RecordReduce();
  // For ReplicaOptions::any_split: adds to the bins; after the reduction, reads the sums from
  // them.
  void AddLossToBins(const LossSums& sums);
  void ReadReducedBins();
  [[nodiscard]] std::span<double> gradient_bins() {
    return bins_.first(bins_.size() - 2 * kDoubleBins);
  }
  [[nodiscard]] std::span<double> loss_bins() { return bins_.last(2 * kDoubleBins); }
  Result<double> SumSquares();
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
  std::unique_ptr<PipelineExchange> pipeline_;  // null: no pipeline stage
  ShardPart own_;                               // what this rank updates
  std::int64_t state_buffers_ = 0;
  std::int64_t in_flight_ = 1;
  HostBuffer stage_gradients_;  // of a stage: pages that it does not use take no memory
  std::unique_ptr<CommMemory> gradient_memory_;
  std::unique_ptr<CommMemory> parameter_memory_;  // parameters are gathered here
  std::unique_ptr<CommMemory> bin_memory_;
  std::span<double> bins_;  // of the gradients, then of loss and divisor; empty unless any_split
  bool bins_used_ = false;  // since gradient_bins() were zero
  Precision precision_ = Precision::kF32;
  std::unique_ptr<Replica> replica_;
  UpdateGraph graph_;
  UpdateGraph::Nodes reduce_;  // gradients, sums and control words
  UpdateGraph::Nodes gather_gradients_;
  UpdateGraph::Nodes gather_squares_;           // of shards
  UpdateGraph::Nodes gather_stages_;            // their squares
  UpdateGraph::Nodes parameters_;               // from the ranks that updated them
  std::vector<UpdateGraph::Nodes> statistics_;  // by segment, recorded in the first update
  bool reduced_ = false;                        // the gradients are those of all ranks
  std::vector<double> squares_;                 // by block, if the optimiser is sharded
  std::vector<double> by_stage_;                // sums of squares
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

}  // namespace gaccd
