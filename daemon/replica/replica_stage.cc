// Replica: pipeline stages, and the messages to and from neighbour stages.
#include <algorithm>

#include "collectives/base/strings.h"
#include "daemon/replica/replica.h"
#include "daemon/replica/stage_messages.h"

namespace gaccd {
namespace {

// Bytes of the largest message that a stage receives.
std::int64_t ReceivedBytes(const Graph& graph, const StageEnds& ends) {
  std::int64_t bytes = 0;
  for (const auto& input : {ends.received, ends.received_gradient}) {
    if (input) bytes = std::max(bytes, graph.value(*input).spec.bytes());
  }
  return bytes;
}

}  // namespace

std::vector<std::span<float>> Replica::UsedParts(std::span<float> whole) const {
  const auto part = [whole](std::int64_t first, std::int64_t elements) {
    return whole.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(elements));
  };
  if (!model_.stage()) return {whole};
  const PipelineStage& stage = *model_.stage();
  std::vector<std::span<float>> used = {part(stage.own().first, stage.own().elements)};
  const std::span<const FlatEntry> entries = model_.layout().entries();
  for (std::size_t p = 0; p < entries.size(); ++p) {
    const FlatEntry& entry = entries[p];
    const bool own = entry.offset >= stage.own().first &&
                     entry.offset < stage.own().first + stage.own().elements;
    if (stage.uses[p] && !own) used.push_back(part(entry.offset, entry.padded_elements()));
  }
  return used;
}

void Replica::ClearGradients() {
  if (!model_.stage()) {  // not an initializer list, which would copy
    std::ranges::fill(gradients_, 0.0F);
    return;
  }
  for (const std::span<float> part : UsedParts(gradients_)) std::ranges::fill(part, 0.0F);
}

// Received values of micro-batches in flight, one of an evaluation, received gradients.
std::int64_t Replica::StageInputs(std::int64_t in_flight) const {
  return in_flight + 1 + (model_.stage()->divides_backward ? in_flight : 1);
}

void Replica::PlanStage(const ReplicaOptions& options, std::int64_t kept) {
  graphs_.ForEach([this](const auto& graph) {
    if constexpr (requires { graph.ids.ends; }) {
      stage_input_bytes_ =
          std::max(stage_input_bytes_, ReceivedBytes(graph.graph(), graph.ids.ends));
    }
  });
  constexpr std::int64_t kAlignment = 64;
  stage_input_bytes_ = (stage_input_bytes_ + kAlignment - 1) / kAlignment * kAlignment;
  kept_bytes_ = kept + options.in_flight * KeptBatchBytes(options) +
                StageInputs(options.in_flight) * stage_input_bytes_;
}

Status Replica::PrepareStage(const ReplicaOptions& options) {
  for (std::int64_t i = 0; i < options.in_flight; ++i) {
    kept_.push_back({BatchMemory(model_.sample(), options.largest_micro_batch()), {}});
  }
  GACCD_ASSIGN_OR_RETURN(
      stage_inputs_, HostBuffer::Allocate(static_cast<std::size_t>(StageInputs(options.in_flight) *
                                                                   stage_input_bytes_),
                                          "messages of the pipeline"));
  return Status::Ok();
}

Result<MutableBuffer> Replica::StageMessage(Message which, BatchSize size,
                                            std::int64_t micro_batch) {
  if (size.samples == 0) return MutableBuffer{};
  GACCD_ASSIGN_OR_RETURN(auto* graph, graphs_.Find<TrainingGraph>(size));
  const std::optional<ValueId> value = MessageValue(graph->ids.ends, which);
  if (!value) return MutableBuffer{};
  const bool sent = which == Message::kSent || which == Message::kSentGradient;
  // With a divided backward, gradients of weights may read a received gradient after later ones
  // have arrived.
  const std::int64_t of_gradient =
      std::ssize(kept_) + 1 + (model_.stage()->divides_backward ? micro_batch : 0);
  const std::int64_t place = which == Message::kReceived ? micro_batch : of_gradient;
  void* const data = sent ? const_cast<void*>(graph->executor->Output<void>(*value))
                          : stage_inputs_.data() + place * stage_input_bytes_;
  return ValueBuffer(graph->graph(), value, data);
}

Result<MutableBuffer> Replica::StageEvaluation(Message which, BatchSize size) {
  GACCD_ASSIGN_OR_RETURN(auto* graph, graphs_.Find<EvaluationGraph>(size));
  const std::optional<ValueId> value = MessageValue(graph->ids.ends, which);
  if (!value) return MutableBuffer{};
  void* data = which == Message::kSent
                   ? const_cast<void*>(graph->executor->Output<void>(*value))
                   : stage_inputs_.data() + std::ssize(kept_) * stage_input_bytes_;
  return ValueBuffer(graph->graph(), value, data);
}

Result<LossSums> Replica::RunStage(const BatchView& batch, std::int64_t micro_batch,
                                   std::int64_t segment, float weight, bool first) {
  KeptBatch& kept = kept_[static_cast<std::size_t>(micro_batch)];
  if (segment == 0) kept.batch = kept.memory.Copy(model_.sample(), batch);
  const bool last = model_.stage()->last();
  const bool accumulates = segment == (last ? 0 : 1);
  if (kept.batch.samples == 0) {
    if (first && accumulates) ClearGradients();
    return LossSums{};
  }
  GACCD_ASSIGN_OR_RETURN(auto* graph, graphs_.Find<TrainingGraph>(kept.batch.size()));
  const auto& [ids, inputs, executor] = *graph;
  weight_ = weight;
  executor->Attach(arena_.data(), scratch_.data(),
                   kept_arena_.data() + graphs_.kept_bytes() * micro_batch);
  Bind(*executor, inputs, kept.batch);
  for (const Message which : {Message::kReceived, Message::kReceivedGradient}) {
    GACCD_ASSIGN_OR_RETURN(const MutableBuffer from,
                           StageMessage(which, kept.batch.size(), micro_batch));
    if (const auto input = MessageValue(ids.ends, which)) executor->BindInput(*input, from.data);
  }
  // In the last stage, forward and backward are one segment.
  const std::int64_t own = last && segment == 2 ? 1 : segment;
  GACCD_RETURN_IF_ERROR(executor->RunSegment(static_cast<std::size_t>(own), first));
  return last && segment == 0 ? ReadSums(*graph, kept.batch.samples) : LossSums{};
}

}  // namespace gaccd
