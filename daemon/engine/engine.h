// Engine: one rank's device with everything an update needs on it: model, gradients, reduction,
// optimiser. RunUpdate() calls the phases in order; this file defines each, for all devices: what
// they compute with is a Backend. On the CPU a phase is done when the call returns. On a GPU it is
// enqueued, and its result is returned one update later (or before the next one, with
// tolerate_nonfinite): the host never waits inside an update.
//
// The divisor. The loss of an update is the sum over its predictions divided by D: their number, or
// the sum of their weights, over all ranks and micro-steps; a prediction without a label is not
// counted. Every prediction weighs 1/N in the accumulators, N = settings.samples x
// model.predictions(), what the plan knows; D is summed with the gradients, and the factor N/D is
// part of what the optimiser multiplies the gradient with, as the clip factor. Where all count, it
// is 1.
//
// A sharded optimiser (EngineOptions::shard): every rank keeps the state and the averages of its
// own part of the parameters. The gradients are reduced and scattered, each rank steps its part,
// and the parameters are gathered; the bits are those of an unsharded update where the sums of the
// communicator are. Measure(), Optimize() and what is marked (sharded: collective) exchange, too.
//
// Used by the thread that made it. A phase out of order is kInternal. After an error only the
// destructor may be called; after one of TakeResult() also Probe() and what reads buffers.
#pragma once

#include <array>
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
#include "daemon/engine/lap_timer.h"
#include "daemon/engine/noise_scale.h"
#include "daemon/engine/sample_ledger.h"
#include "daemon/replica/model.h"

namespace gaccd {

struct UpdateSettings {
  std::int64_t samples = 0;  // of all ranks: what the audit expects
  std::int64_t update = 0;   // its number since the start of the training
  double lr = 0;             // of this update, warm-up and rule included
  double clip_norm = 0;      // 0 = do not clip
  // fp16: what the loss is multiplied with before its gradient is taken. It is taken out again
  // where N/D is put in: norm, clip and step see, and GetGradients() gives, what the loss's own
  // would be.
  double loss_scale = 1;
  // EngineOptions::control_word_count values that are summed over the ranks on the way. Read in
  // Reduce(), as late as can be; valid until then.
  std::span<const double> control_words = {};
  bool measure_noise = false;  // UpdateResult::noise; REQUIRES: Engine::can_measure_noise()
};

struct UpdateResult {
  std::int64_t samples = 0;  // audited: counted over all ranks
  double divisor = 0;        // D, over all ranks
  double loss = 0;           // sum / D
  double grad_norm = 0;      // of the reduced gradient of that loss, before clipping
  bool finite = true;        // loss and gradient, D > 0; false: the update has changed nothing
  double dur_s = 0;          // = data_s + fwd_bwd_s + reduce_s + opt_s
  double data_s = 0;         // waiting for micro-batches
  double fwd_bwd_s = 0;
  double reduce_s = 0;  // the part that does not overlap the last backward, and SumOverUpdate()
  double opt_s = 0;     // norm, audit, clip, step; a sharded optimiser's gathers
  // Of a finite update in which two ranks or more had samples, where it was asked for.
  std::optional<GradientNoise> noise = {};
  // UpdateSettings::control_words, summed over the ranks. Valid until the next Begin().
  std::span<const double> control_words = {};
};

class Engine final {
 public:
  // `backend` is that of the options, made with the same communicator and model, which outlive the
  // engine. See MakeEngine().
  Engine(Communicator& comm, const Model& model, const EngineOptions& options, BackendPtr backend);

  [[nodiscard]] std::string_view device() const { return backend_->device(); }  // "cpu", "cuda"
  [[nodiscard]] EngineMemory memory() const;                                    // planned
  // memory() of an engine with other sizes. Prepares its kernels, and takes none of that memory.
  Result<EngineMemory> PlanMemory(const ReplicaOptions& sizes);
  Result<std::int64_t> FreeDeviceBytes() { return backend_->FreeDeviceBytes(); }  // as of Backend
  // Failed allocations of micro-steps, and how these are divided since.
  [[nodiscard]] DividedSteps& divided_steps() { return divided_; }

  // Parameters and optimiser state as the host sees them: model.layout().size() elements, and
  // StateElements() of them, which Read() gives. All wait for the device. In a stage of a
  // pipeline what reads buffers or a digest is collective.
  Status SetParameters(std::span<const float> parameters);
  Status GetParameters(std::span<float> parameters);
  // The same in one. When `change` fails, they are undefined.
  Status ChangeParameters(const std::function<Status(std::span<float>)>& change);
  Status SetOptimizer(std::span<const float> state, std::int64_t updates);
  // Where the optimiser averages the parameters (optimizer.ema) and an update was done, they and
  // the averages change places, and back at the next call. Between the two only Evaluate() and
  // GetParameters(). REQUIRES: no update has begun and not ended. (Sharded: collective.)
  Status ExchangeAverages() { return backend_->ExchangeAverages(); }
  // The gradients: of the update whose result was taken last, summed over the ranks, before
  // clipping, those of its loss (sharded: collective); or of the last Probe().
  Status GetGradients(std::span<float> gradients);
  // Of the parameters (DigestOf() in daemon/optim/digest.h). Waits for the device.
  Result<std::uint64_t> Digest();

  // Elements [first, first + out.size()) of a buffer: in a checkpoint every rank saves a part.
  // Waits for the device; kInternal when the buffer has not so many. (Sharded: of kOptimizer
  // collective; each rank asks for what it wants, or for nothing.)
  Status Read(EngineBuffer buffer, std::int64_t first, std::span<float> out);
  // An update that has begun counts when it has ended.
  [[nodiscard]] std::int64_t optimizer_updates() const;

  Status Begin(const UpdateSettings& settings);
  // For so many more calls of MicroStep() a batch must stay valid.
  [[nodiscard]] int held_batches() const { return backend_->held_batches(); }
  // The first pass of a contrastive update: a micro-batch becomes representations, which are kept.
  // kInternal where the loss is another one; likewise ComputeContrastiveLoss().
  Status Encode(const BatchView& batch);
  // Collective. The loss over all samples of all ranks, and the gradients of the representations.
  Status ComputeContrastiveLoss();
  // 1. Forward, backward, accumulate in fp32; of a contrastive update in the same order again.
  Status MicroStep(const BatchView& batch, StepPlace place);
  // The same where the model has sums over the update: one segment of its graph
  // (daemon/autograd/executor.h) for one micro-batch. All micro-batches pass segment 0, which takes
  // the batch and copies it; then SumOverUpdate(), a collective; then all pass segment 1. kInternal
  // for another segment than the next one.
  Status RunSegment(const BatchView& batch, std::int64_t micro_batch, std::int64_t segment);
  Status SumOverUpdate();
  // The same in a stage of a pipeline: PipelineAction::Kind, with the messages of its neighbours.
  Status RunStage(const BatchView& batch, std::int64_t micro_batch, std::int64_t segment);
  // Inside an update, for a checkpoint there: what this rank has counted so far. The accumulators
  // are Read(kGradients). Waits for the device. REQUIRES: the update was not reduced.
  Result<WindowShare> Window();
  // The way back, after Begin(): in place of what was computed so far in this update.
  Status SetWindow(std::span<const float> gradients, const WindowShare& share);
  // 2. One sum over all ranks, also of losses and counts. Collective.
  Status Reduce();
  // 3. finite?  4. global norm.
  Status MeasureGradient();
  // 5. audit: counted samples == settings.samples, on the device with 3. TakeResult() returns the
  //    result.
  Status Audit();
  // 6. clip once  7. optimiser step, averages of the parameters, unless 3 or 5 was wrong.
  Status Optimize();
  // 8. the update is over: the next first micro-step overwrites the accumulators.
  Status End();

  // So many updates may be on their way when the next one begins; the results of those before must
  // have been taken. All ranks alike, so that they have issued the same collectives when one of
  // them stops. None where an update may turn out not to count (tolerate_nonfinite): AdamW's
  // factors of the next one depend on that.
  [[nodiscard]] int updates_in_flight() const {
    return backend_->immediate() || options_.tolerate_nonfinite
               ? 0
               : static_cast<int>(Backend::kSlots) - 1;
  }
  // What the oldest update that was not asked for yet has found; empty: it is still running on the
  // device and `wait` is false, or there is none. kNoRequeue: loss or gradient was not finite (on
  // every rank alike); kData: D is 0, likewise; kInternal: the audit failed. The parameters are
  // then those of the update before.
  Result<std::optional<UpdateResult>> TakeResult(bool wait);

  // Forward and backward of one micro-batch by itself, to find what is not finite: the sum of its
  // losses; the gradients are its own then, each prediction weighing what it did in the last
  // update. Not collective, so kNoRequeue unless can_probe(); waits for the device. Of a
  // contrastive loss: against the other samples of the micro-batch. REQUIRES: all results were
  // taken, or were kNoRequeue.
  Result<double> Probe(const BatchView& batch);
  // Whether a micro-batch can be computed without the others: the model has neither collectives nor
  // sums over the update, and is no stage of a pipeline.
  [[nodiscard]] bool can_probe() const {
    return !model_.has_collectives() && model_.update_sums() == 0 && !model_.stage();
  }

  // Whether the gradient of the own samples is there before the reduction, and is a sum over them.
  [[nodiscard]] bool can_measure_noise() const {
    return backend_->immediate() && !model_.contrastive() && model_.micro_values() == 0 &&
           !model_.stage();
  }

  // Sums over `batch`, and what metrics are counted from. May wait for the device. REQUIRES: no
  // update has begun and not ended.
  Result<Evaluation> Evaluate(const BatchView& batch) { return backend_->Evaluate(batch); }

  // Memory for micro-batches from which this engine reads fastest, of so many bytes, aligned to 64;
  // lives as long as the engine. Null: any memory is as good.
  Result<std::byte*> HostMemory(std::size_t bytes) { return backend_->HostMemory(bytes); }

 private:
  enum class Phase : std::uint8_t {
    kEnd,  // none is under way
    kBegin,
    kEncode,
    kContrast,
    kMicroStep,
    kReduce,
    kMeasure,
    kAudit,
    kOptimize
  };
  // An update whose result was not taken.
  struct InFlight {
    UpdateSlot slot;
    UpdateSettings settings;
    std::int64_t optimizer_updates = 0;  // before it
    std::int64_t counted = 0;            // samples of this rank, by the host
    double data_s = 0;                   // while the device had nothing to do
    double sums_s = 0;                   // of SumOverUpdate()
  };

  [[nodiscard]] static std::string_view Name(Phase phase);
  // kInternal unless the last phase was one of `after`.
  [[nodiscard]] Status Expect(std::string_view call, std::initializer_list<Phase> after) const;
  Status Enter(Phase next, std::initializer_list<Phase> after);
  [[nodiscard]] bool open() const { return phase_ != Phase::kEnd; }
  [[nodiscard]] InFlight& current() { return updates_[(oldest_ + count_ - 1) % Backend::kSlots]; }
  [[nodiscard]] std::size_t Elements(EngineBuffer buffer) const;
  Status CountWaiting();
  Status EncodeRows(const BatchView& batch);
  Status ContrastiveLossOver(Communicator& comm);
  Status Accumulate(const BatchView& batch, StepPlace place);
  Status Verdict(const InFlight& update);
  Result<UpdateResult> ResultOf(const InFlight& update);

  Communicator& comm_;
  const Model& model_;
  const EngineOptions options_;
  BackendPtr backend_;
  DividedSteps divided_;
  std::optional<ContrastiveWindow> contrastive_;  // none: the loss is another one
  std::optional<ParameterLimit> limit_;           // of log t
  Phase phase_ = Phase::kEnd;
  std::int64_t segment_ = 0;                       // sums over the update that are done
  std::array<InFlight, Backend::kSlots> updates_;  // a ring
  std::size_t oldest_ = 0;
  std::size_t count_ = 0;
  double loss_scale_ = 1;  // of the update whose inputs the device has
  double correction_ = 1;  // N/D over the loss scale, of the update whose result was taken last
  LapTimer host_;
};

// The engine of options.choice. Collective: gradients come from comm.Allocate(). `model` and `comm`
// outlive the engine. Errors: those of MakeCpuBackend() and MakeCudaBackend().
Result<std::unique_ptr<Engine>> MakeEngine(Communicator& comm, const Model& model,
                                           const EngineOptions& options);

}  // namespace gaccd
