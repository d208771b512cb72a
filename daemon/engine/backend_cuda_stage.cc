// CudaBackend in a pipeline stage. A micro-batch keeps its activations in place micro_batch %
// in_flight from its forward to the last part of its backward, which is enqueued before the forward
// of the next micro-batch that uses the place.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "collectives/base/environment.h"
#include "collectives/comm/nccl_settings.h"
#include "daemon/engine/backend_cuda.h"
#include "daemon/optim/measure.h"

namespace gaccd {
namespace {

using Message = Replica::Message;

// The last segment that reads anything of a micro-batch.
std::int64_t LastSegment(const PipelineStage& stage) {
  if (stage.divides_backward) return 2;
  return stage.last() ? 0 : 1;
}

}  // namespace

Status CudaBackend::StartPipeline() {
  waiter_.AddPollFunction([this] { return pipeline_->Poll(); });
  if (std::string few = FewHardwareQueues(ProcessEnvironment()); !few.empty()) {
    context_->AddWarning(std::move(few));
  }
  GACCD_RETURN_IF_ERROR(pipeline_->CreateStreams(context_->compute()));
  const MutableBuffer one{gradients_, 1, DType::kF32, MemoryKind::kCuda};
  GACCD_RETURN_IF_ERROR(comm_.AllReduceSum(one, one, {context_->reduce()}));
  GACCD_RETURN_IF_ERROR(pipeline_->ExchangeFirst(gradients_, exchange(), context_->reduce()));
  GACCD_RETURN_IF_ERROR(waiter_.WaitForStream(context_->reduce(), "first sums of a stage"));
  for (cudaStream_t stream : pipeline_->streams()) {
    GACCD_RETURN_IF_ERROR(waiter_.WaitForStream(stream, "first messages of a stage"));
  }
  return Status::Ok();
}

Status CudaBackend::RecordStage() {
  const cudaStream_t reduce = context_->reduce();
  GACCD_RETURN_IF_ERROR(pipeline_->Allocate(replica_->stage_rings(), graph_, context_->compute()));
  std::size_t begin = graph_.size();
  GACCD_RETURN_IF_ERROR(pipeline_->RecordReduce(graph_, gradients_, exchange(), reduce));
  const MutableBuffer sums{&control()->sums,
                           sizeof(UpdateSums) / sizeof(double) + options_.control_word_count,
                           DType::kF64, MemoryKind::kCuda};
  GACCD_RETURN_IF_ERROR(graph_.AllReduceSum(comm_, {&sums, 1}, {reduce}));
  stage_sums_ = graph_.Since(begin);
  begin = graph_.size();
  GACCD_RETURN_IF_ERROR(
      pipeline_->RecordSendShared(graph_, parameters_.as<float>(), context_->compute()));
  stage_parameters_ = graph_.Since(begin);
  return Status::Ok();
}

Status CudaBackend::UploadStageBatch(const BatchView& batch, std::int64_t micro_batch) {
  const auto place = static_cast<std::size_t>(micro_batch) % kept_.size();
  kept_[place] = batch.size();
  if (batch.samples > 0) {
    const int slot = static_cast<int>(micro_batch % replica_->input_slots());
    GACCD_RETURN_IF_ERROR(uploads_->UploadTo(slot, batch));
  }
  // Samples and losses of a pipeline are counted in its last stage.
  if (micro_batch == 0 && !model_.stage()->last()) {
    GACCD_RETURN_IF_ERROR(
        AddToSums(context_->compute(), control(), nullptr, nullptr, 0, /*first=*/true));
  }
  return uploads_->NextCall();
}

// The host never waits for messages, also if ranks share a GPU: while it waits for its own kernels
// it has not enqueued the receive of messages that other ranks are sending, and they wait for that.
Status CudaBackend::PostReceive(Message which, const Result<MutableBuffer>& value,
                                std::int64_t micro_batch) {
  GACCD_RETURN_IF_ERROR(value.status());
  return pipeline_->Post(which, *value, micro_batch);
}

// Posts the receives of the gradients of all micro-batches up to this one.
Status CudaBackend::PostGradients(std::int64_t micro_batch) {
  for (; posted_gradients_ <= micro_batch; ++posted_gradients_) {
    const BatchSize size = kept_[static_cast<std::size_t>(posted_gradients_) % kept_.size()];
    if (size.samples == 0) continue;
    constexpr Message kWhich = Message::kReceivedGradient;
    GACCD_RETURN_IF_ERROR(
        PostReceive(kWhich, replica_->StageMessage(kWhich, size), posted_gradients_));
  }
  return Status::Ok();
}

// With GPIPE the next to last stage has many forwards before its first backward. CUDA blocks the
// host at some 1000 pending launches of a stream: in these forwards, while the last stage waits
// until a gradient is received before it computes the next ones. So the receive of gradient i is
// posted after forward i + kAhead. This is early enough, as the places of the rings let forward i +
// 5 run before gradient i is received; and late enough for the deadline of the receive, which
// begins when forward i + kAhead is done.
Status CudaBackend::PostGradientsOfForwards(std::int64_t micro_batch) {
  constexpr std::int64_t kAhead = 2;
  const PipelineStage& stage = *model_.stage();
  const bool early = stage.stage + 2 == stage.stages() && kept_.size() > kAhead;
  return early ? PostGradients(micro_batch - kAhead) : Status::Ok();
}

Status CudaBackend::SendMessage(Message which, const Result<MutableBuffer>& value) {
  GACCD_RETURN_IF_ERROR(value.status());
  return pipeline_->Send(which, *value);
}

Status CudaBackend::RunStage(const BatchView& batch, std::int64_t micro_batch,
                             std::int64_t segment) {
  const PipelineStage& stage = *model_.stage();
  if (segment == 1 && stage.last()) return Status::Ok();  // done with the forward
  if (segment == 0 && micro_batch == 0) posted_gradients_ = 0;
  if (segment == 0) GACCD_RETURN_IF_ERROR(UploadStageBatch(batch, micro_batch));
  const auto place = static_cast<std::size_t>(micro_batch) % kept_.size();
  const BatchSize size = kept_[place];
  if (size.samples == 0) {
    const bool accumulates = segment == (stage.last() ? 0 : 1);
    if (micro_batch == 0 && accumulates) GACCD_RETURN_IF_ERROR(ClearGradients());
    if (micro_batch > 0 || segment > 0 || !stage.last()) return Status::Ok();
    return AddToSums(context_->compute(), control(), nullptr, nullptr, 0, /*first=*/true);
  }
  if (segment == 0) {
    constexpr Message kWhich = Message::kReceived;
    GACCD_RETURN_IF_ERROR(PostReceive(kWhich, replica_->StageMessage(kWhich, size), micro_batch));
    GACCD_RETURN_IF_ERROR(pipeline_->Await(kWhich, micro_batch));
  } else if (segment == 1) {  // segment 2, the gradients of weights, exchanges nothing
    GACCD_RETURN_IF_ERROR(PostGradients(micro_batch));
    GACCD_RETURN_IF_ERROR(pipeline_->Await(Message::kReceivedGradient, micro_batch));
  }
  GACCD_RETURN_IF_ERROR(replica_->RunStage(
      size, {.place = static_cast<std::int64_t>(place),
             .slot = static_cast<int>(micro_batch % replica_->input_slots()),
             .segment = segment,
             .first = micro_batch == 0,
             .received = pipeline_->Received(Message::kReceived, micro_batch),
             .received_gradient = pipeline_->Received(Message::kReceivedGradient, micro_batch)}));
  return EndStage(size, micro_batch, segment);
}

// Sends the output of the segment; releases inputs that it was the last to read.
Status CudaBackend::EndStage(BatchSize size, std::int64_t micro_batch, std::int64_t segment) {
  const PipelineStage& stage = *model_.stage();
  if (segment < 2) {
    const Message which = segment == 0 && !stage.last() ? Message::kSent : Message::kSentGradient;
    GACCD_RETURN_IF_ERROR(SendMessage(which, replica_->StageMessage(which, size)));
  }
  if (segment == 0) GACCD_RETURN_IF_ERROR(PostGradientsOfForwards(micro_batch));
  if (segment == 0 && stage.last()) {
    GACCD_ASSIGN_OR_RETURN(const CudaReplica::LossPlace loss, replica_->StepLoss(size));
    GACCD_RETURN_IF_ERROR(AddToSums(context_->compute(), control(), loss.loss_sum, loss.divisor,
                                    size.samples, /*first=*/micro_batch == 0));
  }
  if (segment != LastSegment(stage)) return Status::Ok();
  GACCD_RETURN_IF_ERROR(pipeline_->Release(Message::kReceived, micro_batch));
  GACCD_RETURN_IF_ERROR(pipeline_->Release(Message::kReceivedGradient, micro_batch));
  return uploads_->Release(static_cast<int>(micro_batch % replica_->input_slots()));
}

Status CudaBackend::ReduceStages(const UpdateSlot& slot) {
  cudaStream_t reduce = context_->reduce();
  const CudaEvent& computed = slots_->event(slot, UpdateMark::kComputed);
  if (!overlaps()) GACCD_RETURN_IF_ERROR(waiter_.Wait(computed, "micro-steps"));
  GACCD_RETURN_IF_ERROR(
      CudaStatus(cudaStreamWaitEvent(reduce, computed.get(), 0), "wait for gradients"));
  reduced_ = true;
  GACCD_RETURN_IF_ERROR(graph_.Run(stage_sums_));
  GACCD_RETURN_IF_ERROR(slots_->Mark(slot, UpdateMark::kReduced, reduce));
  return CudaStatus(
      cudaStreamWaitEvent(context_->compute(), slots_->event(slot, UpdateMark::kReduced).get(), 0),
      "wait for the reduction");
}

// The own part has changed, and the step has updated its 16-bit copy, except in a sharded stage.
Status CudaBackend::SharedParametersChanged() {
  cudaStream_t compute = context_->compute();
  if (!overlaps()) {
    GACCD_RETURN_IF_ERROR(waiter_.WaitForStream(compute, "step before shared parameters"));
  }
  if (shards_ != nullptr) GACCD_RETURN_IF_ERROR(shards_->GatherParameters());
  GACCD_RETURN_IF_ERROR(graph_.Run(stage_parameters_));
  const std::int64_t first = shards_ != nullptr ? 0 : divided().elements;
  const std::int64_t others = places().size() - first;
  if (activations() == DType::kF32 || others == 0) return Status::Ok();
  return CastTo(activations(), compute, parameters_.as<float>() + first, others,
                half_copy_.as<std::uint16_t>() + first);
}

// Later stages wait for this one; this one does not wait for them.
Result<Evaluation> CudaBackend::EvaluateStage(const BatchView& batch) {
  constexpr int kSlot = 0;
  cudaStream_t compute = context_->compute();
  GACCD_RETURN_IF_ERROR(replica_->Upload(batch, kSlot, compute));
  const auto message = [&](Message which) {
    return replica_->StageEvaluation(which, batch.size());
  };
  GACCD_RETURN_IF_ERROR(
      PostReceive(Message::kReceived, message(Message::kReceived), /*micro_batch=*/0));
  GACCD_RETURN_IF_ERROR(pipeline_->Await(Message::kReceived, /*micro_batch=*/0));
  auto* found = results_.as<std::byte>();
  GACCD_RETURN_IF_ERROR(
      replica_->Evaluate(batch.size(), kSlot, found, pipeline_->Received(Message::kReceived, 0)));
  GACCD_RETURN_IF_ERROR(pipeline_->Release(Message::kReceived, 0));
  GACCD_RETURN_IF_ERROR(SendMessage(Message::kSent, message(Message::kSent)));
  GACCD_RETURN_IF_ERROR(waiter_.WaitForStream(compute, "evaluation"));
  if (!model_.stage()->last()) return Evaluation{};
  return replica_->ReadEvaluation(batch.size(), found);
}

Status CudaBackend::CopyInStage(std::string_view what, EngineBuffer to,
                                std::span<const float> from) {
  cudaStream_t compute = context_->compute();
  const std::span<const FlatEntry> entries = model_.layout().entries();
  for (std::size_t p = 0; p < entries.size(); ++p) {
    const std::int64_t place = places().entries()[p].offset;
    if (place == places().size()) continue;  // of other stages
    const auto bytes = static_cast<std::size_t>(entries[p].padded_elements()) * sizeof(float);
    GACCD_RETURN_IF_ERROR(
        CudaStatus(cudaMemcpyAsync(Buffer(to) + place, from.data() + entries[p].offset, bytes,
                                   cudaMemcpyHostToDevice, compute),
                   what));
  }
  return waiter_.WaitForStream(compute, what);
}

Status CudaBackend::CopyOutStage(std::string_view what, EngineBuffer from, std::int64_t first,
                                 std::span<float> to) {
  PipelineExchange& exchange = pipeline_->exchange();
  const bool state = from == EngineBuffer::kOptimizer;
  PipelineExchange::OwnValues own = [&](std::int64_t begin, std::span<float> out) {
    return CopyFromGpu(what, Buffer(from) + begin, out);
  };
  std::vector<float> of_stage;  // if sharded: the whole state, temporarily
  if (state && shards_ != nullptr) {
    of_stage.resize(
        static_cast<std::size_t>(StateElements(options_.optimizer, divided().state_elements)));
    GACCD_RETURN_IF_ERROR(shards_->CopyStateOut(what, state_.as<float>(), 0, of_stage));
    own = [&](std::int64_t begin, std::span<float> out) {
      std::ranges::copy_n(of_stage.begin() + begin, std::ssize(out), out.begin());
      return Status::Ok();
    };
  }
  return state ? exchange.GatherState(own, first, to) : exchange.GatherFlat(own, first, to);
}

Result<std::uint64_t> CudaBackend::DigestAllStages() {
  constexpr std::int64_t kPart = std::int64_t{1} << 20;  // values; even
  const ShardPart& stage = pipeline_->stage().own();
  std::vector<float> part(static_cast<std::size_t>(std::min(kPart, stage.elements)));
  std::uint64_t digest = 0;
  for (std::int64_t i = 0; i < stage.elements; i += kPart) {
    const auto values =
        std::span(part).first(static_cast<std::size_t>(std::min(kPart, stage.elements - i)));
    GACCD_RETURN_IF_ERROR(
        CopyFromGpu("parameters for a digest", parameters_.as<float>() + i, values));
    digest += ComputeDigest(values, stage.first + i);
  }
  return pipeline_->exchange().SumDigests(digest);
}

}  // namespace gaccd
