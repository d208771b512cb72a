// CudaReplica: pipeline stages.
#include "collectives/base/strings.h"
#include "daemon/replica/replica_cuda.h"

namespace gaccd {

StageRings CudaReplica::stage_rings() const {
  return model_.stage() ? PlanStageRings(graphs_, options_.in_flight) : StageRings();
}

Status CudaReplica::RunStage(BatchSize size, const StageRun& run) {
  if (run.place < 0 || run.place >= kept_) {
    return {ErrorKind::kInternal,
            StrCat("expected a place below ", kept_, " of a micro-batch, found ", run.place)};
  }
  GACCD_ASSIGN_OR_RETURN(auto* graph, graphs_.Find<TrainingGraph>(size));
  const auto& [ids, inputs, executor] = *graph;
  executor->Attach(arena_.data(), scratch_.data(),
                   kept_arena_.as<std::byte>() + graphs_.kept_bytes() * run.place);
  Bind(*executor, inputs, static_cast<std::size_t>(run.slot));
  if (ids.ends.received) executor->BindInput(*ids.ends.received, run.received);
  if (ids.ends.received_gradient) {
    executor->BindInput(*ids.ends.received_gradient, run.received_gradient);
  }
  // In the last stage, forward and backward are one segment.
  const bool joined = model_.stage()->last() && run.segment == 2;
  return executor->RunSegment(joined ? 1 : static_cast<std::size_t>(run.segment), run.first);
}

Result<MutableBuffer> CudaReplica::StageMessage(Replica::Message which, BatchSize size) {
  GACCD_ASSIGN_OR_RETURN(auto* graph, graphs_.Find<TrainingGraph>(size));
  const std::optional<ValueId> value = MessageValue(graph->ids.ends, which);
  const bool sent = which == Replica::Message::kSent || which == Replica::Message::kSentGradient;
  void* const data =
      value && sent ? const_cast<void*>(graph->executor->Output<void>(*value)) : nullptr;
  return ValueBuffer(graph->graph(), value, data, MemoryKind::kCuda);
}

Result<MutableBuffer> CudaReplica::StageEvaluation(Replica::Message which, BatchSize size) {
  GACCD_ASSIGN_OR_RETURN(auto* graph, graphs_.Find<EvaluationGraph>(size));
  const std::optional<ValueId> value = MessageValue(graph->ids.ends, which);
  const bool sent = which == Replica::Message::kSent;
  void* const data =
      value && sent ? const_cast<void*>(graph->executor->Output<void>(*value)) : nullptr;
  return ValueBuffer(graph->graph(), value, data, MemoryKind::kCuda);
}

}  // namespace gaccd
