// Backend: what an Engine needs of a device: memory, micro-steps, a sum over the ranks, an
// optimiser step. The engine checks its arguments and the order of the calls, and knows what they
// mean.
//
// A CPU has done what a call says when it returns. A GPU only enqueues it, where nothing else is
// said, and obeys the UpdateControl in its memory. Used by one thread. After an error only what
// reads may be called.
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

// Where an update is exchanged with the backend, which owns the memory.
struct UpdateSlot {
  std::size_t index = 0;  // below Backend::kSlots
  // The engine writes `inputs` before Begin(), and reads the rest when the update is Finished().
  UpdateControl* page = nullptr;
  std::span<double> control_words;  // after it; written before Reduce(), summed when Finished()
};

// The moments of an update, in this order.
enum class UpdateMark : std::uint8_t { kBegin, kComputed, kReduced, kEnd };

// After a step: parameters[element] <= most.
struct ParameterLimit {
  std::int64_t element = 0;
  float most = 0;
};

class Backend {
 public:
  static constexpr std::size_t kSlots = 2;

  virtual ~Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;

  [[nodiscard]] virtual std::string_view device() const = 0;  // "cpu", "cuda"
  [[nodiscard]] virtual EngineMemory memory() const = 0;      // planned
  // memory() of a backend with other sizes, where contrastive losses have more on the host.
  virtual Result<EngineMemory> PlanMemory(const ReplicaOptions& sizes);
  // Bytes that are free on the device now; 0 on a CPU, whose memory belongs to all processes.
  virtual Result<std::int64_t> FreeDeviceBytes() { return 0; }
  // Every call has done its work when it returns.
  [[nodiscard]] virtual bool immediate() const = 0;
  [[nodiscard]] virtual int held_batches() const = 0;            // as of Engine
  virtual Result<std::byte*> HostMemory(std::size_t bytes) = 0;  // as of Engine
  // Before the destructor: waits for the device. false: it may work on this memory for ever, so the
  // destructor must not be called.
  virtual bool Finish() { return true; }

  // The buffers; `what` names the copy in errors. These wait for the device. A sharded optimiser's
  // state is whole here, too: CopyOut() of it is collective, and so is that of reduced gradients.
  virtual Status CopyIn(std::string_view what, EngineBuffer to, std::span<const float> from) = 0;
  virtual Status CopyOut(std::string_view what, EngineBuffer from, std::int64_t first,
                         std::span<float> to) = 0;
  // The parameters where the host can reach them, else nothing.
  [[nodiscard]] virtual std::span<float> host_parameters() { return {}; }
  // After the parameters were set: copies of them in another form are made anew.
  virtual Status ParametersChanged() = 0;
  virtual Status ExchangeAverages() = 0;  // as of Engine
  // Optimiser steps done, with those enqueued.
  [[nodiscard]] virtual std::int64_t updates() const = 0;
  virtual void set_updates(std::int64_t updates) = 0;

  // The same ones at every call.
  [[nodiscard]] virtual UpdateSlot Slot(std::size_t index) = 0;
  // Sets kBegin, completes the inputs with the optimiser's, SetInputs(). lr: of this update.
  virtual Status Begin(const UpdateSlot& slot, double lr) = 0;
  // The micro-steps that follow compute with the inputs of this page.
  virtual Status SetInputs(const UpdateSlot& slot) = 0;
  // The device has nothing to do in this update: while the host waits, so does the device.
  virtual Result<bool> Idle(const UpdateSlot& slot) = 0;
  // Forward, backward, accumulate; adds to the sums. Of a contrastive loss: backward from the
  // gradients of these representations, `first` samples after the first one of this rank;
  // row_gradients: where the host has them.
  virtual Status MicroStep(const BatchView& batch, StepPlace place, std::int64_t first = 0,
                           const float* row_gradients = nullptr) = 0;
  // The error of the memory of micro-steps where it was short: when the backend was made, when
  // PrepareSizes() took it, or in the last MicroStep(), which has then changed nothing. OK: it was
  // not. With such an error nothing computes before PrepareSizes().
  [[nodiscard]] virtual Status shortage() const { return Status::Ok(); }
  // Micro-batches have these sizes from now on, in place of those before; waits for the device, and
  // takes the memory anew. REQUIRES: the model has neither collectives nor sums over the update.
  virtual Status PrepareSizes(const std::set<std::int64_t>& micro_batches);
  // In place of it where the model has sums over the update (Replica::RunSegment).
  virtual Status RunSegment(const BatchView& batch, std::int64_t micro_batch,
                            std::int64_t segment) = 0;
  // In place of it in a stage of a pipeline: the forward (segment 0), the backward (1) or its
  // second part (2) of a micro-batch, with the messages of its neighbours.
  virtual Status RunStage(const BatchView& batch, std::int64_t micro_batch, std::int64_t segment);
  // Collective: of the parameters of all stages (optim/digest.h).
  virtual Result<std::uint64_t> DigestOfStages();
  // Collective: the sum after this segment becomes that of all ranks.
  virtual Status SumOverRanks(std::int64_t segment) = 0;
  // The sums so far. These wait for the device.
  virtual Result<UpdateSums> Sums() = 0;
  virtual Status SetSums(const UpdateSums& sums) = 0;
  // Collective: gradients, sums and control words become those of all ranks. Sets kComputed before,
  // kReduced after.
  virtual Status Reduce(const UpdateSlot& slot) = 0;
  // JudgeUpdate() with the reduced gradient.
  virtual Status Measure() = 0;
  // Step, limit, averages, as the verdict says; then as ParametersChanged().
  virtual Status Optimize(const ParameterLimit* limit) = 0;
  // Sets kEnd; the page becomes the result.
  virtual Status End(const UpdateSlot& slot) = 0;
  virtual Result<bool> Finished(const UpdateSlot& slot, bool wait) = 0;
  // Between two marks of an update that is finished.
  virtual Result<double> Seconds(const UpdateSlot& slot, UpdateMark from, UpdateMark to) = 0;

  // Of a contrastive loss. The representations of a micro-batch, f32 [samples, 2 width], become
  // rows `first`, ... of this rank's; rows: their place on the host, for FetchRows().
  virtual Status Encode(const BatchView& batch, std::int64_t first, float* rows) = 0;
  // All rows of this rank on the host. Returns log t. Waits for the device.
  virtual Result<float> FetchRows(std::span<float> rows) = 0;
  // Their gradients, and the sums of this rank: what the second pass begins with.
  virtual Status SetRowGradients(std::span<const float> gradients, const ContrastiveSums& sums) = 0;
  // The own share of the gradient of log t into the gradients. The last MicroStep() does it too.
  virtual Status SetScaleGradient() = 0;

  virtual Result<Evaluation> Evaluate(const BatchView& batch) = 0;  // as of Engine

 protected:
  Backend() = default;
};

// Leaves the memory to the end of the process where it cannot be freed.
struct BackendDeleter {
  void operator()(Backend* backend) const {
    if (backend->Finish()) delete backend;
  }
};
using BackendPtr = std::unique_ptr<Backend, BackendDeleter>;

// That of options.choice. Collective: gradients come from comm.Allocate(). `comm` and `model`
// outlive it.
Result<BackendPtr> MakeBackend(Communicator& comm, const Model& model,
                               const EngineOptions& options);

// kConfig: neither TF32 nor fp16 is for CPUs. REQUIRES, for bf16: CheckBf16OnCpus() of the
// preflight.
Result<BackendPtr> MakeCpuBackend(Communicator& comm, const Model& model,
                                  const EngineOptions& options);
// REQUIRES: comm reduces device memory (MakeNccl()), or has one rank. kUnavailable where gaccd was
// built without CUDA; kConfig when the device has too little memory free.
Result<BackendPtr> MakeCudaBackend(Communicator& comm, const Model& model,
                                   const EngineOptions& options);

}  // namespace gaccd
