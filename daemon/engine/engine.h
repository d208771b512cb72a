// Engine: one rank's device with everything an update needs on it: model, gradients, reduction,
// optimiser. RunUpdate() calls the phases in order; this file defines each. On the CPU a phase
// is done when the call returns. On a GPU it is enqueued, and its result is returned one update
// later (or before the next one, with tolerate_nonfinite): the host never waits inside an update.
//
// The divisor. The loss of an update is the sum over its predictions divided by D: their number, or
// the sum of their weights, over all ranks and micro-steps; a prediction without a label is not
// counted. Every prediction weighs 1/N in the accumulators, N = settings.samples x
// model.predictions(), what the plan knows; D is summed with the gradients, and the factor N/D is
// part of what the optimiser multiplies the gradient with, as the clip factor. Where all count, it
// is 1.
//
// One per rank, used by the thread that made it. After an error only the destructor may be called;
// after one of TakeResult() also Probe() and what reads parameters, state and gradients.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "collectives/base/result.h"
#include "collectives/comm/communicator.h"
#include "daemon/accum/sample_ledger.h"
#include "daemon/config/job.h"
#include "daemon/device/cuda/sdpa.h"
#include "daemon/model/model.h"
#include "daemon/model/replica.h"

namespace gaccd {

struct CublasLtApi;

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
  double reduce_s = 0;  // the part that does not overlap the last backward
  double opt_s = 0;     // norm, audit, clip, step
  // UpdateSettings::control_words, summed over the ranks. Valid until the next Begin().
  std::span<const double> control_words = {};
};

struct EngineMemory {
  std::int64_t host_bytes = 0;    // planned
  std::int64_t device_bytes = 0;  // planned; 0 on the CPU
  // Measured on the host, where it was asked for: what the process holds before the planned memory
  // is used.
  std::int64_t process_bytes = 0;
};

// Which device computes, and what a GPU needs beyond its number.
struct EngineChoice {
  Device device = Device::kCpu;  // kCpu or kCuda: kAuto was resolved before
  int gpu = 0;                   // as the CUDA runtime of this process counts
  // Several ranks on one GPU (tests): a rank's kernels are over before its collective starts, as a
  // collective waits for ranks that wait for the GPU.
  bool gpu_sharing = false;
  // Reductions overlap the backward pass bucket by bucket also where they would not: with one
  // rank, and where ranks share a GPU. So one GPU can run what several do. REQUIRES: a communicator
  // of GPUs.
  bool always_overlap = false;
  bool time_algorithms = false;  // CudaNumerics::time_algorithms
  std::string choices_folder;    // where timed algorithms are kept from run to run; empty: nowhere
  const CublasLtApi* cublaslt = nullptr;  // null: the library, by LoadCublasLt()
  SdpaOpener sdpa = nullptr;  // the library of attention in bf16; null: by gaccd's own kernel
  // Multiprocessors that a reduction on a GPU takes, which concurrent products leave free; 0: they
  // need not know.
  int reduction_multiprocessors = 0;
  // Elements of one message of the reduction on a GPU: 64 MiB. Smaller gradients are joined.
  std::size_t bucket_elements = std::size_t{16} << 20;
};

struct EngineOptions {
  ReplicaOptions replica;
  OptimizerSpec optimizer;
  Numerics numerics;
  EngineChoice choice;
  std::size_t control_word_count = 0;  // the same on all ranks
  // An update whose loss or gradient is not finite is reported as such and changes nothing, and
  // training may continue; else it is an error.
  bool tolerate_nonfinite = false;
  bool measure_process = false;  // fill EngineMemory::process_bytes, which takes a millisecond
};

// A flat buffer of f32 that makes up the state of a run.
enum class EngineBuffer : std::uint8_t { kParameters, kOptimizer, kGradients };

class Engine {
 public:
  virtual ~Engine() = default;
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  [[nodiscard]] virtual std::string_view device() const = 0;  // "cpu", "cuda"
  [[nodiscard]] virtual EngineMemory memory() const = 0;      // planned

  // Parameters and optimiser state as the host sees them: model.layout().size() elements, and
  // StateElements() of them, which Read() gives. All wait for the device.
  virtual Status SetParameters(std::span<const float> parameters) = 0;
  virtual Status GetParameters(std::span<float> parameters) = 0;
  // The same in one: `change` finds the parameters as they are, and leaves them as they are to be.
  // When it fails, they are undefined.
  virtual Status ChangeParameters(const std::function<Status(std::span<float>)>& change) = 0;
  virtual Status SetOptimizer(std::span<const float> state, std::int64_t updates) = 0;
  // Where the optimiser averages the parameters (optimizer.ema) and an update was done, they and
  // the averages change places, and back at the next call. Between the two only Evaluate() and
  // GetParameters(). REQUIRES: no update has begun and not ended.
  virtual Status ExchangeAverages() = 0;
  // The gradients: of the last update, summed over the ranks, before clipping, those of its loss;
  // or of the last Probe().
  virtual Status GetGradients(std::span<float> gradients) = 0;
  // Of the parameters (DigestOf() in daemon/optim/digest.h). Waits for the device.
  virtual Result<std::uint64_t> Digest() = 0;

  // Elements [first, first + out.size()) of a buffer: in a checkpoint every rank saves a part.
  // Waits for the device; kInternal when the buffer has not so many.
  virtual Status Read(EngineBuffer buffer, std::int64_t first, std::span<float> out) = 0;
  [[nodiscard]] virtual std::int64_t optimizer_updates() const = 0;

  virtual Status Begin(const UpdateSettings& settings) = 0;
  // How many more calls of MicroStep() a batch must stay valid and unchanged.
  [[nodiscard]] virtual int held_batches() const = 0;
  // The first pass of a contrastive update: a micro-batch becomes representations, which are kept.
  // kInternal where the loss is another one; likewise ComputeContrastiveLoss().
  virtual Status Encode(const BatchView& batch);
  // Collective. The loss over all samples of all ranks, and the gradients of the representations.
  virtual Status ComputeContrastiveLoss();
  // 1. Forward, backward, accumulate in fp32. Of a contrastive update: the second pass, the same
  //    micro-batches in the same order.
  virtual Status MicroStep(const BatchView& batch, StepPlace place) = 0;
  // Inside an update, for a checkpoint there: what this rank has counted so far. The accumulators
  // are Read(kGradients). Waits for the device. REQUIRES: the update was not reduced.
  virtual Result<WindowShare> Window() = 0;
  // The way back, after Begin(): in place of what was computed so far in this update.
  virtual Status SetWindow(std::span<const float> gradients, const WindowShare& share) = 0;
  // 2. One sum over all ranks, also of losses and counts. Collective.
  virtual Status Reduce() = 0;
  // 3. finite?  4. global norm.
  virtual Status MeasureGradient() = 0;
  // 5. audit: counted samples == settings.samples. TakeResult() returns the result.
  virtual Status Audit() = 0;
  // 6. clip once  7. optimiser step, averages of the parameters, unless 3 or 5 was wrong.
  virtual Status Optimize() = 0;
  // 8. the update is over: the next first micro-step overwrites the accumulators.
  virtual Status End() = 0;

  // So many updates may be on their way when the next one begins; the results of those before must
  // have been taken. All ranks alike, so that they have issued the same collectives when one of
  // them stops.
  [[nodiscard]] virtual int updates_in_flight() const = 0;
  // What the oldest update that was not asked for yet has found; empty: it is still running on the
  // device and `wait` is false, or there is none. kNoRequeue: loss or gradient was not finite (on
  // every rank alike); kData: D is 0, likewise; kInternal: the audit failed. The parameters are
  // then those of the update before.
  virtual Result<std::optional<UpdateResult>> TakeResult(bool wait) = 0;

  // Forward and backward of one micro-batch by itself, to find what is not finite: the sum of its
  // losses; the gradients are its own then, each prediction weighing what it did in the last
  // update. Not collective, so kNoRequeue for models with collectives; waits for the device.
  // REQUIRES: all results were taken, or were kNoRequeue.
  virtual Result<double> Probe(const BatchView& batch) = 0;

  // Sums over `batch`, and what metrics are counted from. May wait for the device. REQUIRES: no
  // update has begun and not ended.
  virtual Result<Evaluation> Evaluate(const BatchView& batch) = 0;

  // Memory for micro-batches from which this engine reads fastest, of at least so many bytes,
  // aligned to 64; lives as long as the engine. Null: any memory is as good.
  virtual Result<std::byte*> HostMemory(std::size_t bytes) = 0;

 protected:
  Engine() = default;
};

// The engine of options.choice. Collective: gradients come from comm.Allocate(). `model` and `comm`
// outlive the engine.
Result<std::unique_ptr<Engine>> MakeEngine(Communicator& comm, const Model& model,
                                           const EngineOptions& options);

// kConfig: neither TF32 nor fp16 is for CPUs. REQUIRES, for bf16: CheckBf16OnCpus() of the
// preflight.
Result<std::unique_ptr<Engine>> MakeCpuEngine(Communicator& comm, const Model& model,
                                              const EngineOptions& options);
// REQUIRES: comm reduces device memory (MakeNccl()), or has one rank. kUnavailable where gaccd was
// built without CUDA; kConfig when the device has too little memory free.
Result<std::unique_ptr<Engine>> MakeCudaEngine(Communicator& comm, const Model& model,
                                               const EngineOptions& options);

}  // namespace gaccd
