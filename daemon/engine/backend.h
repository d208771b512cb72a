// Backend: the device operations that an Engine needs: memory, micro-steps, a sum over the ranks,
// an optimiser step. The Engine checks its arguments and the order of the calls; a Backend does
// not.
//
// On a CPU a call has finished its work when it returns. On a GPU a call enqueues its work, unless
// its comment says that it waits, and the kernels read the UpdateControl in GPU memory. Used by one
// thread. After an error of the device only functions that read may be called.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <string_view>

#include "collectives/base/result.h"
#include "collectives/comm/communicator.h"
#include "daemon/engine/engine_options.h"
#include "daemon/ops/loss/info_nce.h"
#include "daemon/optim/update_control.h"
#include "daemon/replica/model.h"
#include "daemon/replica/replica.h"

namespace gaccd {

// The memory through which the engine and the backend exchange the inputs and results of one
// update. Owned by the backend.
struct UpdateSlot {
  std::size_t index = 0;  // below Backend::kSlots
  // The engine writes `inputs` before Begin(), and reads the other fields once Finished() is true.
  UpdateControl* page = nullptr;
  // follow `page` in memory; written before Reduce(), summed when Finished()
  std::span<double> control_words;
};

// Timestamps of an update, in this order.
enum class UpdateMark : std::uint8_t { kBegin, kComputed, kReduced, kEnd };

// Applied after a step: parameters[element] <= max_value.
struct ParameterLimit {
  std::int64_t element = 0;
  float max_value = 0;
};

class Backend {
 public:
  static constexpr std::size_t kSlots = 2;

  virtual ~Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;

  [[nodiscard]] virtual std::string_view device() const = 0;  // "cpu", "cuda"
  [[nodiscard]] virtual EngineMemory memory() const = 0;      // planned
  // memory() of a backend with other sizes. With a contrastive loss an engine needs more host
  // memory than this (Engine::PlanMemory()).
  virtual Result<EngineMemory> PlanMemory(const ReplicaOptions& sizes);
  // Free bytes on the device now; 0 on a CPU, whose memory is shared by all processes.
  virtual Result<std::int64_t> FreeDeviceBytes() { return 0; }
  // Whether every call has finished its work when it returns.
  [[nodiscard]] virtual bool immediate() const = 0;
  [[nodiscard]] virtual int held_batches() const = 0;            // see Engine
  virtual Result<std::byte*> HostMemory(std::size_t bytes) = 0;  // see Engine
  // Call before the destructor: waits for the device. false: the device may still use this memory,
  // so the destructor must not be called.
  virtual bool Finish() { return true; }

  // Copies between the host and a buffer; `what` names the copy in errors. Both wait for the
  // device. The state of a sharded optimiser is addressed as a whole: CopyOut() of it is
  // collective, as is CopyOut() of reduced gradients.
  virtual Status CopyIn(std::string_view what, EngineBuffer to, std::span<const float> from) = 0;
  virtual Status CopyOut(std::string_view what, EngineBuffer from, std::int64_t first,
                         std::span<float> to) = 0;
  // The parameters, if the host can access them; otherwise empty.
  [[nodiscard]] virtual std::span<float> host_parameters() { return {}; }
  // Call after the parameters were set: updates copies of them in other formats.
  virtual Status ParametersChanged() = 0;
  virtual Status ExchangeAverages() = 0;  // see Engine
  // Optimiser steps done, including enqueued ones.
  [[nodiscard]] virtual std::int64_t updates() const = 0;
  virtual void set_updates(std::int64_t updates) = 0;

  // Returns the same slot for the same index at every call.
  [[nodiscard]] virtual UpdateSlot Slot(std::size_t index) = 0;
  // Records kBegin, adds the optimiser's inputs to the page and calls SetInputs(). lr: learning
  // rate of this update.
  virtual Status Begin(const UpdateSlot& slot, double lr) = 0;
  // The following micro-steps use the inputs of this page.
  virtual Status SetInputs(const UpdateSlot& slot) = 0;
  // Whether the device has no work left in this update: then the device is idle while the host
  // waits.
  virtual Result<bool> Idle(const UpdateSlot& slot) = 0;
  // Forward, backward, accumulate; adds to the sums. With a contrastive loss: backward from the
  // gradients of the representations of these samples, which begin at sample `first` of this rank.
  // row_gradients: these gradients, if they are in host memory.
  virtual Status MicroStep(const BatchView& batch, MicroStepPosition place, std::int64_t first = 0,
                           const float* row_gradients = nullptr) = 0;
  // The error if memory for micro-steps could not be allocated: when the backend was made, in
  // PrepareSizes(), or in the last MicroStep(), which then has changed nothing; otherwise OK. After
  // such an error nothing can be computed before PrepareSizes().
  [[nodiscard]] virtual Status allocation_error() const { return Status::Ok(); }
  // Replaces the micro-batch sizes by these, and ReplicaOptions::recompute; waits for the device
  // and allocates the memory again. REQUIRES: the model has no collectives; if it has sums over the
  // update, it runs on a CPU and no update is in progress.
  virtual Status PrepareSizes(const std::set<std::int64_t>& micro_batches, Recompute recompute);
  // Replaces MicroStep() for models with sums over the update (Replica::RunSegment).
  virtual Status RunSegment(const BatchView& batch, std::int64_t micro_batch,
                            std::int64_t segment) = 0;
  // Replaces MicroStep() in a pipeline stage: the forward (segment 0), the backward (1) or the
  // second part of the backward (2) of a micro-batch. Exchanges messages with the neighbour stages.
  virtual Status RunStage(const BatchView& batch, std::int64_t micro_batch, std::int64_t segment);
  // Collective: digest of the parameters of all stages (optim/measure.h).
  virtual Result<std::uint64_t> DigestAllStages();
  // Collective: sums the update sum after this segment over all ranks.
  virtual Status SumOverRanks(std::int64_t segment) = 0;
  // The sums accumulated so far. Both wait for the device.
  virtual Result<UpdateSums> Sums() = 0;
  virtual Status SetSums(const UpdateSums& sums) = 0;
  // Collective: sums gradients, sums and control words over all ranks. Records kComputed before and
  // kReduced after it.
  virtual Status Reduce(const UpdateSlot& slot) = 0;
  // Calls DecideUpdate() with the reduced gradient.
  virtual Status Measure() = 0;
  // Step, limit and parameter averages, unless the decision rejects the update; then
  // ParametersChanged().
  virtual Status Optimize(const ParameterLimit* limit) = 0;
  // Records kEnd; copies the results to the page.
  virtual Status End(const UpdateSlot& slot) = 0;
  virtual Result<bool> Finished(const UpdateSlot& slot, bool wait) = 0;
  // Seconds between two marks of a finished update.
  virtual Result<double> Seconds(const UpdateSlot& slot, UpdateMark from, UpdateMark to) = 0;

  // For contrastive losses. Computes the representations of a micro-batch, f32 [samples, 2 width],
  // into rows `first`, first + 1, ... of this rank. rows: where the host stores them, for
  // FetchRows().
  virtual Status Encode(const BatchView& batch, std::int64_t first, float* rows) = 0;
  // Copies all rows of this rank to the host. Returns log t. Waits for the device.
  virtual Result<float> FetchRows(std::span<float> rows) = 0;
  // Sets the gradients of the rows and the sums of this rank, before the second pass.
  virtual Status SetRowGradients(std::span<const float> gradients, const ContrastiveSums& sums) = 0;
  // Adds this rank's share of the gradient of log t to the gradients. The last MicroStep() does it
  // too.
  virtual Status SetScaleGradient() = 0;

  virtual Result<Evaluation> Evaluate(const BatchView& batch) = 0;  // see Engine

 protected:
  Backend() = default;
};

// Deletes the backend, or leaks it if the device may still use its memory.
struct BackendDeleter {
  void operator()(Backend* backend) const {
    if (backend->Finish()) delete backend;
  }
};
using BackendPtr = std::unique_ptr<Backend, BackendDeleter>;

// Makes the backend for options.choice. Collective: gradients come from comm.Allocate(). `comm` and
// `model` must outlive it.
Result<BackendPtr> MakeBackend(Communicator& comm, const Model& model,
                               const EngineOptions& options);

// kConfig: TF32 or fp16 was requested, which CPUs do not support. REQUIRES for bf16:
// CheckBf16OnCpus() of the preflight.
Result<BackendPtr> MakeCpuBackend(Communicator& comm, const Model& model,
                                  const EngineOptions& options);
// REQUIRES: comm reduces device memory (MakeNccl()), or has one rank. kUnavailable if gaccd was
// built without CUDA; kConfig if the device has too little free memory.
Result<BackendPtr> MakeCudaBackend(Communicator& comm, const Model& model,
                                   const EngineOptions& options);

}  // namespace gaccd
