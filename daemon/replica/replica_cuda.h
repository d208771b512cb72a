// CudaReplica: one rank's copy of the model on its GPU. Every micro-step is recorded as a CUDA
// graph before the run, one per micro-batch size, input slot and position in the update. A
// micro-step is one launch, or one before and one after each collective of the model; values that
// differ between launches are in GPU memory. Used by one thread; everything is enqueued on
// CudaContext::compute() unless stated otherwise.
#pragma once

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "collectives/base/cuda.h"
#include "collectives/base/dtype.h"
#include "daemon/config/job.h"
#include "daemon/device/cuda/cuda_context.h"
#include "daemon/device/cuda/cuda_graph.h"
#include "daemon/device/cuda/device_memory.h"
#include "daemon/ops/norm/running_statistics_cuda.h"
#include "daemon/replica/model.h"
#include "daemon/replica/prepared_graphs.h"
#include "daemon/replica/replica.h"
#include "daemon/replica/stage_messages.h"

namespace gaccd {

// GPU memory owned by the caller; must outlive the replica.
struct CudaReplicaBuffers {
  float* parameters = nullptr;           // places.size() elements
  float* gradients = nullptr;            // places.size() elements; padding is zero
  const float* weight = nullptr;         // TrainingGraph::weight of this update
  const std::int64_t* update = nullptr;  // i64 [1]: number of the update
  // Layout of these buffers (StagePlaces()); null: the layout of the model.
  const FlatLayout* places = nullptr;
};

// Work that the caller adds to every recorded micro-step.
struct CudaStepHooks {
  // In the last micro-step, after the kernel that completes the gradient of `parameter`.
  std::function<Status(std::size_t parameter)> ready;
  // Before a collective of the graph is enqueued.
  std::function<Status()> before_collective = nullptr;
  // At the end. loss_sum, divisor: f64 [1] on the GPU, see LossSums; divisor null: the number of
  // samples. With a contrastive loss both are null.
  std::function<Status(const double* loss_sum, const double* divisor, std::int64_t samples,
                       MicroStepPosition place)>
      finish;
};

class CudaReplica {
 public:
  // Double buffering: one slot is filled while the other is read.
  static constexpr int kInputSlots = 2;
  // kInputSlots, or more: one per micro-batch of an update if the model has sums over the update;
  // one per micro-batch in flight in a pipeline stage.
  [[nodiscard]] int input_slots() const { return static_cast<int>(std::max(kept_, kInputSlots)); }

  // Records the graphs; allocates nothing yet. `comm`, which models with collectives need, must
  // outlive the replica. kConfig, with their names, if functions have no GPU kernel.
  static Result<std::unique_ptr<CudaReplica>> Create(CudaContext& context, const Model& model,
                                                     const ReplicaOptions& options,
                                                     Precision precision,
                                                     Communicator* comm = nullptr);
  ~CudaReplica();

  // The part of Prepare()'s memory for micro-batches that are kept between their segments and for
  // sums over the update.
  [[nodiscard]] std::int64_t kept_bytes() const;
  // Adds what Prepare() allocates: activations, inputs, and scratch, which is known after
  // PrepareKernels().
  void AddMemory(DeviceMemory* memory) const;

  // The first part of Prepare(): afterwards AddMemory() includes the scratch. Allocates nothing.
  Status PrepareKernels(const CudaReplicaBuffers& buffers);
  // Prepares a kernel for every node, allocates the memory and records all micro-steps. kConfig
  // from FitsOnGpu() if there is not enough free memory.
  Status Prepare(const CudaReplicaBuffers& buffers, const CudaStepHooks& hooks);

  // Replaces the sizes for MicroStep(). Prepares and records all graphs again, and allocates their
  // memory again. kOs if memory is short: then nothing can be computed and this may be called
  // again. REQUIRES: Prepare(); the GPU does no work of this object; the model has neither
  // collectives nor sums over the update.
  Status PrepareSizes(const std::set<std::int64_t>& micro_batches, Recompute recompute);

  // Enqueues the copy of a batch (samples >= 1) into an input slot on `stream`. `batch` must stay
  // valid until the copy is done; with pinned memory this returns at once.
  Status Upload(const BatchView& batch, int slot, cudaStream_t stream);
  // One micro-step on the batch in `slot`. 0 samples: only if the model has collectives.
  Status MicroStep(BatchSize size, int slot, MicroStepPosition place);

  // Replaces MicroStep() if the model has sums over the update: see Replica::RunSegment(), for the
  // batch in `slot`, samples >= 1. The last segment returns what CudaStepHooks::finish receives
  // after a micro-step. Segments are recorded at their first run, unless there are too many.
  struct LossPlace {
    const double* loss_sum = nullptr;
    const double* divisor = nullptr;
  };
  Status BeginSegments();
  Result<LossPlace> RunSegment(BatchSize size, std::int64_t micro_batch, int slot,
                               std::int64_t segment);
  // Loss of the last run.
  Result<LossPlace> StepLoss(BatchSize size);
  // After segment `sum`: the sum on this rank, to be overwritten with the sum over all ranks.
  [[nodiscard]] MutableBuffer update_sum(std::int64_t sum) const;

  // Replaces MicroStep() in a pipeline stage: see Replica::RunStage(), for the batch in `slot`,
  // samples >= 1, kernel by kernel. place: below ReplicaOptions::in_flight, the memory that the
  // micro-batch keeps between its segments. StepLoss() of the last stage is valid after segment 0.
  struct StageRun {
    std::int64_t place = 0;
    int slot = 0;
    std::int64_t segment = 0;
    bool first = false;
    const void* received = nullptr;           // StageMessage() in memory of the caller
    const void* received_gradient = nullptr;  // valid until the last segment has run
  };
  Status RunStage(BatchSize size, const StageRun& run);
  // A message of a micro-batch or of an evaluation: its elements and, if sent, its memory, which
  // the next run overwrites. Empty if this stage has no such neighbour.
  Result<MutableBuffer> StageMessage(Replica::Message which, BatchSize size);
  Result<MutableBuffer> StageEvaluation(Replica::Message which, BatchSize size);
  // Sizes of the message rings, which the caller allocates.
  [[nodiscard]] StageRings stage_rings() const;

  // Once per update, after the reduction of the gradients: see running_statistics_cuda.h.
  Status CollectRunningStatistics();
  Status AddToRunningStatistics(const std::int32_t* idle);

  // For a contrastive loss: forward on the batch in `slot`, as in training; copies its rows to
  // `rows`, f32 [samples, 2 width] in GPU memory.
  Status Encode(BatchSize size, int slot, float* rows);

  // Forward on the batch in `slot`, and copies of its outputs to `host`: pinned memory of
  // evaluation_bytes() bytes. received: in a stage that receives a message.
  Status Evaluate(BatchSize size, int slot, std::byte* host, const void* received = nullptr);
  // Call when the copies are done. REQUIRES: Evaluate(size) was the last call.
  Result<Evaluation> ReadEvaluation(BatchSize size, const std::byte* host);
  [[nodiscard]] std::size_t evaluation_bytes() const { return evaluation_bytes_; }

  // Deviations of Prepare() because a library lacks a feature.
  [[nodiscard]] const std::vector<std::string>& notes() const { return notes_; }

 private:
  // By slot, then by first + 2 * last; the segments between collectives.
  using RecordedSteps = std::array<std::array<std::vector<CudaGraph>, 4>, kInputSlots>;
  struct SegmentKey {
    BatchSize size;
    std::int64_t micro_batch = 0;
    int slot = 0;
    std::int64_t segment = 0;
    auto operator<=>(const SegmentKey&) const = default;
  };
  struct RecordedSegment {
    CudaGraph graph;
    LossPlace loss;
  };
  // Location of a batch tensor in a slot.
  struct InputPlace {
    std::int64_t bytes = 0;   // size for the largest batch, aligned; 0: no graph reads it
    std::int64_t offset = 0;  // in the slot
  };

  CudaReplica(CudaContext& context, const Model& model, const ReplicaOptions& options,
              Precision precision, Communicator* comm);
  Status RecordGraphs();
  void CountMemory();
  void Bind(Executor& executor, std::span<const BoundInput> inputs, std::size_t slot) const;
  Status AttachMemory(const CudaReplicaBuffers& buffers);
  Status RecordAllSteps();
  Status RecordSteps(std::int64_t samples, PreparedGraph<TrainingGraph>& training,
                     RecordedSteps* steps);
  // Defined in replica_cuda_segments.cc.
  [[nodiscard]] bool RecordsSegments() const;
  Result<LossPlace> EnqueueSegment(const SegmentKey& key);
  [[nodiscard]] std::int64_t StatisticsBytes() const;
  Status AttachStatistics(const CudaReplicaBuffers& buffers);
  [[nodiscard]] RunningLayer MakeRunningLayer(const nn::RunningUpdate& running,
                                              const CudaReplicaBuffers& buffers,
                                              const Executor& executor);
  Result<std::vector<CudaGraph>> RecordStep(std::int64_t samples,
                                            PreparedGraph<TrainingGraph>& training,
                                            MicroStepPosition place);

  CudaContext& context_;
  const Model& model_;
  ReplicaOptions options_;
  const Precision precision_;
  Communicator* comm_;
  CudaReplicaBuffers buffers_;
  CudaStepHooks hooks_;
  std::vector<std::string> notes_;
  std::unique_ptr<KernelFactory> kernels_;
  PreparedGraphs graphs_;
  std::map<BatchSize, RecordedSteps> steps_;
  std::map<SegmentKey, RecordedSegment> segments_;
  bool segments_fit_ = true;        // recorded segments fit into GPU memory
  std::vector<InputPlace> places_;  // by InputIndex()
  std::int64_t slot_bytes_ = 0;
  std::size_t evaluation_bytes_ = 0;
  DeviceBuffer arena_;
  DeviceBuffer scratch_;
  DeviceBuffer inputs_;
  const std::int64_t* update_ = nullptr;

  int kept_ = 0;                    // number of micro-batches that are kept between their segments
  DeviceBuffer kept_arena_;         // memory that they keep
  std::vector<std::int64_t> sums_;  // sums over the update: number of elements
  DeviceBuffer update_sums_;        // f64, contiguous
  DeviceBuffer running_layers_;     // a RunningLayer per layer with running statistics
  DeviceBuffer running_found_;      // work memory of the running statistics
};

}  // namespace gaccd
