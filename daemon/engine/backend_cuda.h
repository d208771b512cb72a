// The backend on a GPU. Everything is enqueued; what is in the way of the host is only the copy of
// a batch some micro-steps ago, and the result of the update before.
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
#include "daemon/engine/batch_uploads.h"
#include "daemon/engine/contrastive_cuda.h"
#include "daemon/engine/cuda_reduction.h"
#include "daemon/engine/device_waiter.h"
#include "daemon/engine/pipeline_cuda.h"
#include "daemon/engine/shard_cuda.h"
#include "daemon/engine/update_slots_cuda.h"
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
  // Waits for the GPU, but not for kernels of NCCL that never end: then the memory stays taken.
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
  Status MicroStep(const BatchView& batch, StepPlace place, std::int64_t first,
                   const float* row_gradients) override;
  [[nodiscard]] Status shortage() const override { return shortage_; }
  Status PrepareSizes(const std::set<std::int64_t>& micro_batches) override;
  Status RunSegment(const BatchView& batch, std::int64_t micro_batch,
                    std::int64_t segment) override;
  Status RunStage(const BatchView& batch, std::int64_t micro_batch, std::int64_t segment) override;
  Result<std::uint64_t> DigestOfStages() override;
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
  // What the backend allocates itself; the context's own memory is not in it.
  [[nodiscard]] DeviceMemory PlannedMemory(bool gradients = true) const;
  Status AllocateGradients();
  Status ReduceOnce(const Status& mine);
  Status PrepareReplica();
  Status CreateOptimizer();
  // Of the part that this rank updates: the others get it.
  Status OwnParametersChanged();
  void LogNotes();  // of the preparation of kernels
  Status EmptyMicroStep(StepPlace place);
  Status ClearGradients();
  Status TakeBatch(const BatchView& batch, std::int64_t micro_batch);
  Status EndMicroStep(const double* loss_sum, const double* divisor, std::int64_t samples,
                      StepPlace place);
  // Of the whole state what this rank updates.
  Status CopyInOwnState(std::string_view what, std::span<const float> whole);
  // backend_cuda_stage.cc: of a stage of a pipeline
  Status StartPipeline();
  Status TakeStageBatch(const BatchView& batch, std::int64_t micro_batch);
  Status ReceiveMessage(Replica::Message which, const Result<MutableBuffer>& value,
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
  // The entries of the layout in the buffers: all, or of a stage.
  [[nodiscard]] const FlatLayout& places() const {
    return pipeline_ != nullptr ? pipeline_->places() : model_.layout();
  }
  // Of the layout what ranks with the same parameters divide: all, or the stage, which has it from
  // element 0 of its buffers on.
  [[nodiscard]] ShardPart divided() const {
    return pipeline_ != nullptr ? pipeline_->stage().own()
                                : ShardPart{.elements = model_.layout().size(),
                                            .state_elements = model_.layout().trainable_size()};
  }
  // Null where there are no shards.
  [[nodiscard]] ShardExchange* exchange() const {
    return shards_ != nullptr ? &shards_->exchange() : nullptr;
  }
  // Of parameters and gradients; a stage may have none, but not no memory.
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
  [[nodiscard]] DType activations() const { return ActivationsOf(options_.numerics.precision); }
  [[nodiscard]] UpdateControl* control() const { return words_.as<UpdateControl>(); }

  Communicator& comm_;
  const Model& model_;
  const EngineOptions options_;
  DeviceWaiter waiter_;
  Status shortage_;
  std::int64_t process_bytes_ = 0;
  std::unique_ptr<CudaContext> context_;
  ShardPart own_;         // what this rank updates
  bool reduced_ = false;  // enqueued: the gradients are those of all ranks, of the own part alone
                          // where there are shards
  std::unique_ptr<CudaPipeline> pipeline_;  // null: no stage of one

  std::unique_ptr<CudaShards> shards_;  // null: every rank has all of the optimiser's state

  // Memory outlives what works on it, but for communicators.
  DeviceBuffer parameters_;
  DeviceBuffer half_copy_;  // of the parameters, in the type of the activations; f32: none
  std::unique_ptr<CommMemory> shared_gradients_;  // with other ranks
  DeviceBuffer own_gradients_;                    // without
  float* gradients_ = nullptr;
  DeviceBuffer state_;
  DeviceBuffer words_;  // an UpdateControl, followed by the control words
  DeviceBuffer norm_scratch_;
  PinnedBuffer found_;  // what an evaluation finds, or the sums
  std::vector<PinnedBuffer> host_memory_;

  std::unique_ptr<CudaReduction> reduction_;  // null: !reduces()
  std::unique_ptr<CudaReplica> replica_;
  std::unique_ptr<CudaRows> rows_;  // null: the loss is not contrastive
  std::unique_ptr<CudaOptimizer> optimizer_;
  std::vector<BatchSize> kept_;  // of an update that runs segment by segment: its micro-batches;
                                 // of a stage: those in flight
  std::vector<int> kept_slots_;  // where the former are
  std::optional<BatchUploads> uploads_;
  std::optional<CudaSlots> slots_;
};

}  // namespace gaccd
