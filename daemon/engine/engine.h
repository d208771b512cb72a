// Engine: one rank's model, gradients, reduction and optimiser on its device. RunUpdate() calls the
// phases in order. This file defines each phase; the device-specific part is a Backend. On a CPU a
// phase is done when the call returns. On a GPU it is enqueued and its result is returned one
// update later (or before the next one, with tolerate_nonfinite): the host does not wait.
//
// Divisor: the loss of an update is the sum over its predictions divided by D, their number or the
// sum of their weights over all ranks and micro-steps. Predictions without a label are not counted.
// In the accumulators every prediction weighs 1/N, N = settings.samples x model.predictions(),
// which the plan knows. D is summed together with the gradients, and the optimiser multiplies the
// gradient by N/D, as it does by the clip factor. N/D is 1 if all predictions count.
//
// Sharded optimiser (EngineOptions::shard): every rank keeps the state and the averages of its own
// part of the parameters. Gradients are reduced and scattered, each rank updates its part, and the
// parameters are gathered. Results are bit-identical to unsharded ones if the communicator's sums
// are. MeasureGradient(), Optimize() and functions marked "sharded: collective" communicate too.
//
// Used by the thread that made it. A phase called out of order is kInternal. After an error only
// the destructor may be called; after one of PopResult() also Probe() and reads of buffers.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "collectives/base/result.h"
#include "collectives/comm/communicator.h"
#include "daemon/engine/contrastive_window.h"
#include "daemon/engine/divided_steps.h"
#include "daemon/engine/engine_options.h"
#include "daemon/engine/noise_scale.h"
#include "daemon/engine/sample_audit.h"
#include "daemon/replica/model.h"

namespace gaccd {

struct UpdateSettings {
  std::int64_t samples = 0;  // over all ranks: what the audit expects
  std::int64_t update = 0;   // its number since the start of training
  double lr = 0;             // of this update, including warm-up and schedule
  double clip_norm = 0;      // 0: no clipping
  // fp16: the loss is multiplied by this before its gradient is computed. The factor is removed
  // together with applying N/D, so norm, clip, step and GetGradients() see the gradient of the
  // unscaled loss.
  double loss_scale = 1;
  // EngineOptions::control_word_count values that are summed over the ranks during the reduction.
  // Read in Reduce(); must be valid until then.
  std::span<const double> control_words = {};
  bool measure_noise = false;  // fills UpdateResult::noise; REQUIRES: Engine::can_measure_noise()
};

struct UpdateResult {
  std::int64_t samples = 0;  // counted over all ranks and audited
  double divisor = 0;        // D, over all ranks
  double loss = 0;           // sum / D
  double grad_norm = 0;      // norm of the reduced gradient of that loss, before clipping
  bool finite = true;        // loss and gradient are finite and D > 0; false: nothing was changed
  double dur_s = 0;          // = data_s + fwd_bwd_s + reduce_s + opt_s
  double data_s = 0;         // waiting for micro-batches
  double fwd_bwd_s = 0;
  double reduce_s = 0;  // the part that does not overlap the last backward, plus SumOverUpdate()
  double opt_s = 0;     // norm, audit, clip, step; sharded: also the gathers
  // Set for a finite update if measure_noise and at least two ranks had samples.
  std::optional<GradientNoise> noise = {};
  // UpdateSettings::control_words, summed over the ranks. Valid until the next Begin().
  std::span<const double> control_words = {};
};

class Engine final {
 public:
  // `backend` is made from the same arguments; `comm` and `model` must outlive the engine.
  Engine(Communicator& comm, const Model& model, const EngineOptions& options, BackendPtr backend);

  [[nodiscard]] std::string_view device() const { return backend_->device(); }  // "cpu", "cuda"
  [[nodiscard]] EngineMemory memory() const;                                    // planned
  // memory() of an engine with other sizes. Prepares its kernels but allocates none of that memory.
  Result<EngineMemory> PlanMemory(const ReplicaOptions& sizes);
  Result<std::int64_t> FreeDeviceBytes() { return backend_->FreeDeviceBytes(); }  // see Backend
  // Failed allocations of micro-steps, and how micro-steps are divided since.
  [[nodiscard]] DividedSteps& divided_steps() { return divided_; }

  // Parameters and optimiser state in host format: model.layout().size() elements, and
  // StateElements() of the state, which Read() returns. All wait for the device. In a pipeline
  // stage, functions that read buffers or a digest are collective.
  Status SetParameters(std::span<const float> parameters);
  Status GetParameters(std::span<float> parameters);
  // Reads, changes and sets the parameters. If `change` fails, the parameters are undefined.
  Status ChangeParameters(const std::function<Status(std::span<float>)>& change);
  Status SetOptimizer(std::span<const float> state, std::int64_t updates);
  // If the optimiser averages the parameters (optimizer.ema) and an update was done, swaps
  // parameters and averages; the next call swaps them back. In between only Evaluate() and
  // GetParameters() may be called. REQUIRES: no update is in progress. (Sharded: collective.)
  Status ExchangeAverages() { return backend_->ExchangeAverages(); }
  // The gradients: those of the update whose result PopResult() returned last, summed over the
  // ranks, before clipping (sharded: collective); or those of the last Probe().
  Status GetGradients(std::span<float> gradients);
  // Digest of the parameters (ComputeDigest() in daemon/optim/measure.h). Waits for the device.
  Result<std::uint64_t> Digest();

  // Copies elements [first, first + out.size()) of a buffer, as each rank saves a part in a
  // checkpoint. Waits for the device; kInternal if the range exceeds the buffer. (Sharded:
  // kOptimizer is collective; each rank chooses its range, which may be empty.)
  Status Read(EngineBuffer buffer, std::int64_t first, std::span<float> out);
  // Optimiser steps done. An update in progress is not counted.
  [[nodiscard]] std::int64_t optimizer_updates() const;

  Status Begin(const UpdateSettings& settings);
  // A batch must stay valid for this many further calls of MicroStep().
  [[nodiscard]] int held_batches() const { return backend_->held_batches(); }
  // First pass of a contrastive update: computes and keeps the representations of a micro-batch.
  // kInternal if the loss is not contrastive, as for ComputeContrastiveLoss().
  Status Encode(const BatchView& batch);
  // Collective. Computes the loss over all samples of all ranks and the gradients of the
  // representations.
  Status ComputeContrastiveLoss();
  // 1. Forward, backward, accumulate in fp32; in a contrastive update, the second pass in the same
  // order of micro-batches.
  Status MicroStep(const BatchView& batch, MicroStepPosition place);
  // Replaces MicroStep() for models with sums over the update: one segment of the graph
  // (daemon/autograd/executor.h) for one micro-batch. All micro-batches run segment 0, which copies
  // the batch; then SumOverUpdate(), a collective; then all run segment 1, and so on. kInternal if
  // `segment` is not the next one.
  Status RunSegment(const BatchView& batch, std::int64_t micro_batch, std::int64_t segment);
  Status SumOverUpdate();
  // Replaces MicroStep() in a pipeline stage. segment: PipelineAction::Kind.
  Status RunStage(const BatchView& batch, std::int64_t micro_batch, std::int64_t segment);
  // For a checkpoint inside an update: the counts of this rank. The accumulators are
  // Read(kGradients). Waits for the device. REQUIRES: the update was not reduced.
  Result<PartialUpdate> GetPartialUpdate();
  // Restores GetPartialUpdate() and the accumulators. REQUIRES: Begin() was called.
  Status SetPartialUpdate(std::span<const float> gradients, const PartialUpdate& share);
  // 2. Sums gradients, losses and counts over all ranks. Collective.
  Status Reduce();
  // 3. Checks for non-finite values.  4. Global norm.
  Status MeasureGradient();
  // 5. Audit: counted samples == settings.samples. The result is returned by PopResult().
  Status Audit();
  // 6. Clip once.  7. Optimiser step and parameter averages, unless 3 or 5 failed.
  Status Optimize();
  // 8. Ends the update: the next first micro-step overwrites the accumulators.
  Status End();

  // How many updates may be in flight when the next one begins; PopResult() must have returned the
  // results of earlier ones. The same on all ranks, so that all have issued the same collectives
  // when one of them stops. 0 if an update may be skipped (tolerate_nonfinite), as the AdamW
  // factors of the next one depend on that.
  [[nodiscard]] int updates_in_flight() const;
  // The result of the oldest update in flight; empty if it is still running on the device and
  // `wait` is false, or if there is none. kNoRequeue: loss or gradient is not finite; kData: D is 0
  // (both on all ranks); kInternal: the audit failed. With such an error the parameters are those
  // of the previous update.
  Result<std::optional<UpdateResult>> PopResult(bool wait);
  // Whether an update has made a parameter that this rank updates non-finite, up to the result that
  // PopResult() returned last. Sticky: no later update is finite.
  [[nodiscard]] bool parameters_not_finite() const { return parameters_not_finite_; }

  // Forward and backward of one micro-batch alone, to locate non-finite values. Returns the sum of
  // its losses, or their divisor if that is not finite; the gradients are then its own, weighted as
  // in the last update. Not collective, so kNoRequeue unless can_probe(). Waits for the device.
  // With a contrastive loss the other samples of the micro-batch are the negatives. REQUIRES:
  // PopResult() has returned the results of all updates, or kNoRequeue.
  Result<double> Probe(const BatchView& batch);
  // Whether a micro-batch can be computed without the others.
  [[nodiscard]] bool can_probe() const {
    return !model_.has_collectives() && model_.update_sums() == 0 && !model_.stage();
  }

  // Whether the gradient of this rank's samples is available before the reduction and is a sum over
  // the samples.
  [[nodiscard]] bool can_measure_noise() const {
    return backend_->immediate() && !options_.replica.any_split && !model_.contrastive() &&
           model_.micro_values() == 0 && !model_.stage();
  }

  // Sums over `batch`, and the predictions for metrics. May wait for the device. REQUIRES: no
  // update is in progress.
  Result<Evaluation> Evaluate(const BatchView& batch) { return backend_->Evaluate(batch); }

  // `bytes` bytes of host memory from which this engine reads micro-batches fastest, aligned to 64;
  // lives as long as the engine. Null: any memory is equally fast.
  Result<std::byte*> HostMemory(std::size_t bytes) { return backend_->HostMemory(bytes); }

 private:
  enum class Phase : std::uint8_t {
    kEnd,  // no update is in progress
    kBegin,
    kEncode,
    kContrast,
    kMicroStep,
    kReduce,
    kMeasure,
    kAudit,
    kOptimize
  };
  // An update whose result PopResult() has not returned yet.
  struct InFlight {
    UpdateSlot slot;
    UpdateSettings settings;
    std::int64_t optimizer_updates = 0;  // optimiser steps before it
    std::int64_t counted = 0;            // samples of this rank, counted on the host
    double data_s = 0;                   // waiting while the device had no work
    double sums_s = 0;                   // time in SumOverUpdate()
  };

  [[nodiscard]] static std::string_view Name(Phase phase);
  // kInternal unless the last phase is one of `after`.
  [[nodiscard]] Status Expect(std::string_view call, std::initializer_list<Phase> after) const;
  Status Enter(Phase next, std::initializer_list<Phase> after);
  [[nodiscard]] bool open() const { return phase_ != Phase::kEnd; }
  [[nodiscard]] InFlight& current() { return updates_[(oldest_ + count_ - 1) % Backend::kSlots]; }
  [[nodiscard]] std::size_t Elements(EngineBuffer buffer) const;
  double Lap();  // seconds on the host since the last call
  Status CountWaiting();
  Status EncodeRows(const BatchView& batch);
  Status ContrastiveLossOver(Communicator& comm);
  Status Accumulate(const BatchView& batch, MicroStepPosition place);
  Status CheckDecision(const InFlight& update);
  Result<UpdateResult> MakeResult(const InFlight& update);

  Communicator& comm_;
  const Model& model_;
  const EngineOptions options_;
  BackendPtr backend_;
  DividedSteps divided_;
  std::optional<ContrastiveWindow> contrastive_;  // empty: the loss is not contrastive
  std::optional<ParameterLimit> limit_;           // upper limit of log t
  Phase phase_ = Phase::kEnd;
  std::int64_t segment_ = 0;                       // number of finished sums over the update
  std::array<InFlight, Backend::kSlots> updates_;  // a ring
  std::size_t oldest_ = 0;
  std::size_t count_ = 0;
  double loss_scale_ = 1;  // of the update whose inputs are on the device
  // N/D divided by the loss scale, of the update whose result PopResult() returned last
  double correction_ = 1;
  bool parameters_not_finite_ = false;
  std::chrono::steady_clock::time_point lap_ = std::chrono::steady_clock::now();
};

// Makes the engine for options.choice. Collective: gradients come from comm.Allocate(). `model` and
// `comm` must outlive the engine. Errors: those of MakeCpuBackend() and MakeCudaBackend().
Result<std::unique_ptr<Engine>> MakeEngine(Communicator& comm, const Model& model,
                                           const EngineOptions& options);

}  // namespace gaccd
