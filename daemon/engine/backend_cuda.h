// The backend on a GPU. All work is enqueued. The host only waits for the copy of an earlier batch
// (BatchUploads) and for the result of the previous update.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "daemon/device/cuda/cuda_context.h"
#include "daemon/device/cuda/device_memory.h"
#include "daemon/engine/backend.h"
#include "daemon/engine/contrastive_cuda.h"
#include "daemon/engine/cuda_reduction.h"
#include "daemon/engine/device_waiter.h"
#include "daemon/engine/pipeline_cuda.h"
#include "daemon/engine/shard_cuda.h"
#include "daemon/engine/transfers_cuda.h"
#include "daemon/optim/optimizer.h"
#include "daemon/optim/optimizer_cuda.h"
#include "daemon/replica/replica_cuda.h"
#include "daemon/tensor/shard_layout.h"

namespace gaccd {

class CudaBackend final : public Backend {
 public:
  CudaBackend(Communicator& comm, const Model& model, const EngineOptions& options)
      : comm_(comm), model_(model), options_(options), waiter_(comm) {}

  Status Create();

  [[nodiscard]] std::string_view device() const override { return "cuda"; }
  [[nodiscard]] EngineMemory memory() const override;
  Result<EngineMemory> PlanMemory(const ReplicaOptions& sizes) override;
  Result<std::int64_t> FreeDeviceBytes() override { return FreeOnGpu(); }
  [[nodiscard]] bool immediate() const override { return false; }
  [[nodiscard]] int held_batches() const override { return BatchUploads::kHeld; }
  Result<std::byte*> HostMemory(std::size_t bytes) override;
  // Waits for the GPU, except for NCCL kernels that never end: then returns false.
  bool Finish() override;

  Status CopyIn(std::string_view what, EngineBuffer to, std::span<const float> from) override;
  Status CopyOut(std::string_view what, EngineBuffer from, std::int64_t first,
                 std::span<float> to) override;
  Status ParametersChanged() override;
  Status ExchangeAverages() override;
  [[nodiscard]] std::int64_t updates() const override { return optimizer_->updates(); }
  void set_updates(std::int64_t updates) override { optimizer_->set_updates(updates); }

  [[nodiscard]] UpdateSlot Slot(std::size_t index) override { return slots_->Slot(index); }
  Status Begin(const UpdateSlot& slot, double lr) override;
  Status SetInputs(const UpdateSlot& slot) override {
    return CudaSlots::SendInputs(slot, control(), context_->compute());
  }
  Result<bool> Idle(const UpdateSlot& slot) override;
  Status MicroStep(const BatchView& batch, MicroStepPosition place, std::int64_t first,
                   const float* row_gradients) override;
  [[nodiscard]] Status allocation_error() const override { return allocation_error_; }
  Status PrepareSizes(const std::set<std::int64_t>& micro_batches, Recompute recompute) override;
  Status RunSegment(const BatchView& batch, std::int64_t micro_batch,
                    std::int64_t segment) override;
  Status RunStage(const BatchView& batch, std::int64_t micro_batch, std::int64_t segment) override;
  Result<std::uint64_t> DigestAllStages() override;
  Status SumOverRanks(std::int64_t segment) override;
  Result<UpdateSums> Sums() override;
  Status SetSums(const UpdateSums& sums) override;
  Status Reduce(const UpdateSlot& slot) override;
  Status Measure() override;
  Status Optimize(const ParameterLimit* limit) override;
  Status End(const UpdateSlot& slot) override;
  Result<bool> Finished(const UpdateSlot& slot, bool wait) override;
  Result<double> Seconds(const UpdateSlot& slot, UpdateMark from, UpdateMark to) override {
    return slots_->Seconds(slot, from, to);
  }

  Status Encode(const BatchView& batch, std::int64_t first, float* rows) override;
  Result<float> FetchRows(std::span<float> rows) override {
    return rows_->FetchRows(rows, parameters_.as<float>(), waiter_);
  }
  Status SetRowGradients(std::span<const float> gradients, const ContrastiveSums& sums) override {
    return rows_->SetGradients(gradients, sums, waiter_);
  }
  Status SetScaleGradient() override { return rows_->SetScaleGradient(gradients_); }

  Result<Evaluation> Evaluate(const BatchView& batch) override;

 private:
  Status DivideState();
  Status CreateLocally();
  // What the backend allocates itself, without the memory of the CudaContext.
  [[nodiscard]] DeviceMemory PlannedMemory(bool gradients = true) const;
  Status AllocateGradients();
  Status ReduceOnce(const Status& mine);
  Status PrepareReplica();
  Status CreateOptimizer();
  // Distributes the part of the parameters that this rank has updated to the other ranks.
  Status OwnParametersChanged();
  void LogNotes();  // logs the notes of the kernel preparation
  Status EmptyMicroStep(MicroStepPosition place);
  Status ClearGradients();
  Status UploadBatch(const BatchView& batch, std::int64_t micro_batch);
  Status EndMicroStep(const double* loss_sum, const double* divisor, std::int64_t samples,
                      MicroStepPosition place);
  // Copies in the part of the whole state that this rank updates.
  Status CopyInOwnState(std::string_view what, std::span<const float> whole);
  // Pipeline stages: backend_cuda_stage.cc.
  Status RecordStage();
  Status StartPipeline();
  Status UploadStageBatch(const BatchView& batch, std::int64_t micro_batch);
  Status PostGradients(std::int64_t micro_batch);
  Status PostGradientsOfForwards(std::int64_t micro_batch);
  Status PostReceive(Replica::Message which, const Result<MutableBuffer>& value,
                     std::int64_t micro_batch);
  Status SendMessage(Replica::Message which, const Result<MutableBuffer>& value);
  Status EndStage(BatchSize size, std::int64_t micro_batch, std::int64_t segment);
  Status ReduceStages(const UpdateSlot& slot);
  Status SharedParametersChanged();
  Result<Evaluation> EvaluateStage(const BatchView& batch);
  Status CopyInStage(std::string_view what, EngineBuffer to, std::span<const float> from);
  Status CopyOutStage(std::string_view what, EngineBuffer from, std::int64_t first,
                      std::span<float> to);
  Status CopyFromGpu(std::string_view what, const float* from, std::span<float> to);
  [[nodiscard]] float* Buffer(EngineBuffer buffer) const {
    return buffer == EngineBuffer::kOptimizer    ? state_.as<float>()
           : buffer == EngineBuffer::kParameters ? parameters_.as<float>()
                                                 : gradients_;
  }
  // The layout of the buffers: all parameters, or those of a stage.
  [[nodiscard]] const FlatLayout& places() const {
    return pipeline_ != nullptr ? pipeline_->places() : model_.layout();
  }
  // The part of the layout that is sharded among ranks with the same parameters: all of it, or the
  // stage's part, which begins at element 0 of its buffers.
  [[nodiscard]] ShardPart divided() const {
    return pipeline_ != nullptr ? pipeline_->stage().own()
                                : ShardPart{.elements = model_.layout().size(),
                                            .state_elements = model_.layout().trainable_size()};
  }
  // Null if the optimiser is not sharded.
  [[nodiscard]] ShardExchange* exchange() const {
    return shards_ != nullptr ? &shards_->exchange() : nullptr;
  }
  // Elements of the parameter and the gradient buffer. At least one aligned block, as a stage may
  // have no parameters.
  [[nodiscard]] std::size_t elements() const {
    return static_cast<std::size_t>(std::max(places().size(), FlatLayout::kAlignment));
  }
  [[nodiscard]] std::size_t state_elements() const {
    return static_cast<std::size_t>(StateElements(options_.optimizer, own_.state_elements));
  }
  [[nodiscard]] std::size_t words_bytes() const {
    return sizeof(UpdateControl) + options_.control_word_count * sizeof(double);
  }
  [[nodiscard]] bool reduces() const { return comm_.size() > 1 || options_.choice.always_overlap; }
  [[nodiscard]] bool overlaps() const {
    return !options_.choice.gpu_sharing || options_.choice.always_overlap;
  }
  [[nodiscard]] DType activations() const { return ActivationDType(options_.numerics.precision); }
  [[nodiscard]] UpdateControl* control() const { return words_.as<UpdateControl>(); }

  Communicator& comm_;
  const Model& model_;
  const EngineOptions options_;
  DeviceWaiter waiter_;
  Status allocation_error_;
  std::int64_t process_bytes_ = 0;
  std::unique_ptr<CudaContext> context_;
  ShardPart own_;  // the part that this rank updates
  // the reduction is enqueued: gradients are summed over all ranks; sharded: only the own part
  bool reduced_ = false;
  std::unique_ptr<CudaPipeline> pipeline_;  // null: not a pipeline stage

  std::unique_ptr<CudaShards> shards_;  // null: the optimiser is not sharded

  // Declared before its users, so that it is freed after them. Communicators are the exception.
  DeviceBuffer parameters_;
  DeviceBuffer half_copy_;  // the parameters in the type of the activations; empty for f32
  std::unique_ptr<CommMemory> shared_gradients_;  // gradient memory from the communicator
  DeviceBuffer own_gradients_;                    // gradient memory if there is no communication
  float* gradients_ = nullptr;
  DeviceBuffer state_;
  DeviceBuffer words_;  // an UpdateControl, followed by the control words
  DeviceBuffer norm_scratch_;
  PinnedBuffer results_;  // copy of the results of an evaluation, or of the sums
  std::vector<PinnedBuffer> host_memory_;

  UpdateGraph graph_;
  UpdateGraph::Nodes stage_sums_;
  UpdateGraph::Nodes stage_parameters_;
  std::vector<UpdateGraph::Nodes> statistics_;  // by segment, recorded in the first update
  std::unique_ptr<CudaReduction> reduction_;    // null: !reduces()
  std::unique_ptr<CudaReplica> replica_;
  std::unique_ptr<CudaRows> rows_;  // null: the loss is not contrastive
  std::unique_ptr<CudaOptimizer> optimizer_;
  // update that runs segment by segment: its micro-batches; pipeline stage: the micro-batches in
  // flight
  std::vector<BatchSize> kept_;
  std::int64_t posted_gradients_ = 0;  // of a stage's micro-batches in this update
  std::vector<int> kept_slots_;        // input slots of `kept_`, segment by segment only
  std::optional<BatchUploads> uploads_;
  std::optional<CudaSlots> slots_;
};

}  // namespace gaccd
