// The engine on a GPU: see engine.h for what the phases mean. Everything is enqueued; what is
// in the way of the host is only the copy of a batch some micro-steps ago, and the result of the
// update before.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "daemon/device/cuda/cuda_context.h"
#include "daemon/device/cuda/device_memory.h"
#include "daemon/engine/batch_uploads.h"
#include "daemon/engine/contrastive_cuda.h"
#include "daemon/engine/cuda_reduction.h"
#include "daemon/engine/device_waiter.h"
#include "daemon/engine/engine.h"
#include "daemon/engine/lap_timer.h"
#include "daemon/engine/update_records.h"
#include "daemon/model/replica_cuda.h"
#include "daemon/optim/optimizer.h"
#include "daemon/optim/optimizer_cuda.h"

namespace gaccd {

class CudaEngine final : public Engine {
 public:
  CudaEngine(Communicator& comm, const Model& model, const EngineOptions& options)
      : comm_(comm), model_(model), options_(options), waiter_(comm) {}
  // Waits for the GPU, but not for kernels of NCCL that never end: then the memory stays taken.
  ~CudaEngine() override;

  Status Create();

  [[nodiscard]] std::string_view device() const override { return "cuda"; }
  [[nodiscard]] EngineMemory memory() const override;
  [[nodiscard]] int held_batches() const override { return BatchUploads::kHeld; }
  // Where an update may turn out not to count (tolerate_nonfinite), AdamW's factors of the next one
  // depend on that: none is on its way then.
  [[nodiscard]] int updates_in_flight() const override {
    return options_.tolerate_nonfinite ? 0 : UpdateRecords::kInFlight - 1;
  }

  Status SetParameters(std::span<const float> parameters) override;
  Status ChangeParameters(const std::function<Status(std::span<float>)>& change) override;
  Status GetParameters(std::span<float> parameters) override;
  Status SetOptimizer(std::span<const float> state, std::int64_t updates) override;
  Status ExchangeAverages() override { return optimizer_->ExchangeAverages(context_->compute()); }
  Status GetGradients(std::span<float> gradients) override;
  Result<std::uint64_t> Digest() override;
  Status Read(EngineBuffer buffer, std::int64_t first, std::span<float> out) override;
  // An update that has begun counts when it has ended.
  [[nodiscard]] std::int64_t optimizer_updates() const override {
    return open_ ? records_->current().optimizer_updates : optimizer_->updates();
  }

  Status Begin(const UpdateSettings& settings) override;
  Status Encode(const BatchView& batch) override;
  Status ComputeContrastiveLoss() override;
  Status MicroStep(const BatchView& batch, StepPlace place) override;
  Result<WindowShare> Window() override;
  Status SetWindow(std::span<const float> gradients, const WindowShare& share) override;
  Status Reduce() override;
  Status MeasureGradient() override;
  // The kernel of MeasureGradient() has compared the counts, too.
  Status Audit() override { return Status::Ok(); }
  Status Optimize() override;
  Status End() override;
  Result<std::optional<UpdateResult>> TakeResult(bool wait) override;

  Result<double> Probe(const BatchView& batch) override;
  Result<Evaluation> Evaluate(const BatchView& batch) override;
  Result<std::byte*> HostMemory(std::size_t bytes) override;

 private:
  void LeaveToTheProcess();
  Status CreateLocally();
  // What the engine allocates itself; the context's own memory is not in it.
  [[nodiscard]] DeviceMemory PlannedMemory(bool gradients = true) const;
  Status AllocateGradients();
  Status ReduceOnce(const Status& mine);
  Status PrepareReplica();
  Status CountWaiting();
  Status EncodeRows(const BatchView& batch);
  Status EmptyMicroStep(StepPlace place);
  Status Finish(const double* loss_sum, const double* divisor, std::int64_t samples,
                StepPlace place);
  Status CopyIn(std::string_view what, std::span<const float> from, float* to,
                std::size_t elements);
  Status CopyOut(std::string_view what, const float* from, std::size_t elements,
                 std::span<float> to);
  Status Verdict(const UpdateRecord& record);
  [[nodiscard]] std::size_t elements() const {
    return static_cast<std::size_t>(model_.layout().size());
  }
  [[nodiscard]] std::size_t state_elements() const {
    return static_cast<std::size_t>(
        StateElements(options_.optimizer, model_.layout().trainable_size()));
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
  std::int64_t process_bytes_ = 0;
  std::unique_ptr<CudaContext> context_;

  // Memory outlives what works on it.
  DeviceBuffer parameters_;
  DeviceBuffer half_copy_;  // of the parameters, in the type of the activations; f32: none
  std::unique_ptr<CommMemory> shared_gradients_;  // with other ranks
  DeviceBuffer own_gradients_;                    // without
  float* gradients_ = nullptr;
  DeviceBuffer state_;
  DeviceBuffer words_;  // an UpdateControl, followed by the control words
  DeviceBuffer norm_scratch_;
  PinnedBuffer evaluation_;
  std::vector<PinnedBuffer> host_memory_;

  std::unique_ptr<CudaReduction> reduction_;  // null: !reduces()
  std::unique_ptr<CudaReplica> replica_;
  std::unique_ptr<CudaContrast> contrast_;  // null: the loss is another one
  std::unique_ptr<CudaOptimizer> optimizer_;
  std::optional<BatchUploads> uploads_;
  std::optional<UpdateRecords> records_;
  bool open_ = false;      // an update has begun and not ended
  double loss_scale_ = 1;  // of the update that has begun last
  // Of the update whose result was asked for last: N/D, over its loss scale.
  double correction_ = 1;
  LapTimer host_;
};

}  // namespace gaccd
