// CudaReplica: one rank's copy of the model on its GPU. Every micro-step is recorded as a CUDA
// graph before the run: one for each size of a micro-batch, input slot and place in the update. So
// a micro-step is one launch, or one before and one after each collective operation of the model,
// and what differs between launches lies in GPU memory. Used by one thread; everything is enqueued
// on CudaContext::compute() unless said otherwise.
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

#include "collectives/base/buffer.h"
#include "collectives/base/cuda.h"
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

// GPU memory of the caller, which outlives the replica.
struct CudaReplicaBuffers {
  float* parameters = nullptr;           // places.size() elements
  float* gradients = nullptr;            // the same; padding zeroed
  const float* weight = nullptr;         // what TrainingGraph::weight is, in this update
  const std::int64_t* update = nullptr;  // i64 [1]: its number
  // The entries of the model's layout in these buffers (PlacesOfStage()); null: as in the layout.
  const FlatLayout* places = nullptr;
};

// What the caller adds to every recorded micro-step.
struct CudaStepHooks {
  // In the last micro-step, after the kernel that completes the gradient of `parameter`.
  std::function<Status(std::size_t parameter)> ready;
  // Before a collective operation of the graph is enqueued.
  std::function<Status()> before_collective = nullptr;
  // At the end. loss_sum, divisor: f64 [1] on the GPU, as in LossSums; divisor null: samples. Of a
  // contrastive loss both are null.
  std::function<Status(const double* loss_sum, const double* divisor, std::int64_t samples,
                       StepPlace place)>
      finish;
};

class CudaReplica {
 public:
  // Inputs on the GPU: one is filled while the other is read.
  static constexpr int kInputSlots = 2;
  // The same; where the model has sums over the update, one for each micro-batch of an update; of a
  // stage one for each that is in flight.
  [[nodiscard]] int input_slots() const { return static_cast<int>(std::max(kept_, kInputSlots)); }

  // Records the graphs; nothing is allocated yet. `comm`, for models with collectives, outlives the
  // replica. kConfig, naming them, when functions have no kernel on a GPU.
  static Result<std::unique_ptr<CudaReplica>> Create(CudaContext& context, const Model& model,
                                                     const ReplicaOptions& options,
                                                     Precision precision,
                                                     Communicator* comm = nullptr);
  ~CudaReplica();

  // Of what Prepare() allocates: micro-batches that are kept between their segments, and the sums
  // of an update.
  [[nodiscard]] std::int64_t kept_bytes() const;
  // What Prepare() allocates: activations, inputs; and scratch, which is known when the kernels are
  // prepared.
  void AddMemory(DeviceMemory* memory) const;

  // The first part of Prepare(): after it AddMemory() knows the scratch, and nothing is allocated.
  Status PrepareKernels(const CudaReplicaBuffers& buffers);
  // Prepares a kernel for every node, allocates the memory and records all micro-steps. kConfig
  // from FitsOnGpu() when the memory, with scratch, is not free.
  Status Prepare(const CudaReplicaBuffers& buffers, const CudaStepHooks& hooks);

  // MicroStep() will be called with these sizes, in place of those before. All graphs are made and
  // recorded anew, and their memory. kOs when the memory is short: nothing can be computed then,
  // and this may be called again. REQUIRES: Prepare(); the GPU does no work of this object; the
  // model has neither collectives nor sums over the update.
  Status PrepareSizes(const std::set<std::int64_t>& micro_batches);

  // Enqueues the copies of a batch (samples >= 1) into an input slot on `stream`. The memory of
  // `batch` is read until they are done; pinned memory makes this return at once.
  Status Upload(const BatchView& batch, int slot, cudaStream_t stream);
  // One micro-step on the batch in `slot`. No samples: only where the model has collectives.
  Status MicroStep(BatchSize size, int slot, StepPlace place);

  // Where the model has sums over the update, in place of MicroStep(): as Replica::RunSegment(), of
  // the batch in `slot`, samples >= 1. The last segment gives what CudaStepHooks::finish gets after
  // a micro-step. Segments are recorded when they run for the first time, if they are not too many.
  struct LossPlace {
    const double* loss_sum = nullptr;
    const double* divisor = nullptr;
  };
  Status BeginSegments();
  Result<LossPlace> RunSegment(BatchSize size, std::int64_t micro_batch, int slot,
                               std::int64_t segment);
  // Of what ran last.
  Result<LossPlace> LossOf(BatchSize size);
  // After segment `sum`: what this rank has of it, to be replaced by that of all ranks.
  [[nodiscard]] MutableBuffer update_sum(std::int64_t sum) const;

  // Of a stage of a pipeline, in place of MicroStep(): as Replica::RunStage(), of the batch in
  // `slot`, samples >= 1, kernel by kernel. place: below ReplicaOptions::in_flight, what the
  // micro-batch keeps between its segments. The last stage's LossOf() is valid after segment 0.
  struct StageRun {
    std::int64_t place = 0;
    int slot = 0;
    std::int64_t segment = 0;
    bool first = false;
    const void* received = nullptr;           // what StageMessage() says, in memory of the caller
    const void* received_gradient = nullptr;  // until the last segment has run
  };
  Status RunStage(BatchSize size, const StageRun& run);
  // A message of a micro-batch, or of an evaluation: its elements, and of what is sent the memory,
  // which the next run overwrites. Empty where this stage has no such neighbour.
  Result<MutableBuffer> StageMessage(Replica::Message which, BatchSize size);
  Result<MutableBuffer> StageEvaluation(Replica::Message which, BatchSize size);
  // Places for the messages, which the caller has.
  [[nodiscard]] StageRings stage_rings() const;

  // Once an update, after the reduction of the gradients: see running_statistics_cuda.h.
  Status CollectRunningStatistics();
  Status AddToRunningStatistics(const std::int32_t* idle);

  // Of a contrastive loss: forward on the batch in `slot`, as in training; its rows are copied to
  // `rows`, f32 [samples, 2 width] in GPU memory.
  Status Encode(BatchSize size, int slot, float* rows);

  // Forward on the batch in `slot`, and copies of what it gives to `host`: pinned memory of
  // evaluation_bytes() bytes. received: of a stage that receives.
  Status Evaluate(BatchSize size, int slot, std::byte* host, const void* received = nullptr);
  // Once they are done. REQUIRES: Evaluate(size) was the last one.
  Result<Evaluation> ReadEvaluation(BatchSize size, const std::byte* host);
  [[nodiscard]] std::size_t evaluation_bytes() const { return evaluation_bytes_; }

  // What Prepare() did otherwise than it should be, because a library does not offer it.
  [[nodiscard]] const std::vector<std::string>& notes() const { return notes_; }

 private:
  // By slot, then by place: first + 2 * last; the segments between the collectives.
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
  // A tensor of the batch that graphs read; where a slot has it.
  struct InputPlace {
    std::int64_t bytes = 0;   // of the largest batch, aligned; 0: no graph reads it
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
  // replica_cuda_segments.cc
  [[nodiscard]] bool RecordsSegments() const;
  Result<LossPlace> EnqueueSegment(const SegmentKey& key);
  [[nodiscard]] std::int64_t StatisticsBytes() const;
  Status AttachStatistics(const CudaReplicaBuffers& buffers);
  [[nodiscard]] RunningLayer LayerOf(const nn::RunningUpdate& running,
                                     const CudaReplicaBuffers& buffers, const Executor& executor);
  Result<std::vector<CudaGraph>> RecordStep(std::int64_t samples,
                                            PreparedGraph<TrainingGraph>& training,
                                            StepPlace place);

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
  bool segments_fit_ = true;        // in the memory of the GPU
  std::vector<InputPlace> places_;  // see PlaceOf()
  std::int64_t slot_bytes_ = 0;
  std::size_t evaluation_bytes_ = 0;
  DeviceBuffer arena_;
  DeviceBuffer scratch_;
  DeviceBuffer inputs_;
  const std::int64_t* update_ = nullptr;

  int kept_ = 0;                    // micro-batches that are kept between their segments
  DeviceBuffer kept_arena_;         // what each of them keeps between its segments
  std::vector<std::int64_t> sums_;  // over the update: elements
  DeviceBuffer update_sums_;        // f64, one after the other
  DeviceBuffer running_layers_;     // RunningLayer, for each layer with running statistics
  DeviceBuffer running_found_;      // what they work with
};

}  // namespace gaccd
