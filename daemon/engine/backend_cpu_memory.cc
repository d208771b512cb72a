// CpuBackend in a pipeline stage: micro-batches and evaluations with messages to the neighbour
// stages; copies of buffers whose parts are on other ranks.
#include <algorithm>
#include <vector>

#include "daemon/engine/backend_cpu.h"

namespace gaccd {
namespace {

// Reader of this rank's values, for gathers over a pipeline.
PipelineExchange::OwnValues MakeOwnValuesReader(std::span<const float> own) {
  return [own](std::int64_t first, std::span<float> out) {
    std::ranges::copy(own.subspan(static_cast<std::size_t>(first), out.size()), out.begin());
    return Status::Ok();
  };
}

}  // namespace

Status CpuBackend::CopyIn(std::string_view /*what*/, EngineBuffer to, std::span<const float> from) {
  if (to == EngineBuffer::kOptimizer) {
    KeepOwnState(from);
  } else if (pipeline_) {
    CopyInStage(to, from);
  } else {
    std::ranges::copy(from, Buffer(to).begin());
  }
  return Status::Ok();
}

Status CpuBackend::CopyOut(std::string_view /*what*/, EngineBuffer from, std::int64_t first,
                           std::span<float> to) {
  if (from == EngineBuffer::kOptimizer) return GatherState(first, to);
  if (shards_ && from == EngineBuffer::kGradients && reduced_) {
    GACCD_RETURN_IF_ERROR(graph_.Run(gather_gradients_));
  }
  if (pipeline_) return pipeline_->GatherFlat(MakeOwnValuesReader(Stage(Buffer(from))), first, to);
  std::ranges::copy(Buffer(from).subspan(static_cast<std::size_t>(first), to.size()), to.begin());
  return Status::Ok();
}

void CpuBackend::KeepOwnState(std::span<const float> whole) {
  const auto trainable = static_cast<std::size_t>(model_.layout().trainable_size());
  const auto elements = static_cast<std::size_t>(own_.state_elements);
  for (std::size_t buffer = 0; buffer < static_cast<std::size_t>(state_buffers_); ++buffer) {
    const std::size_t first = buffer * trainable + static_cast<std::size_t>(own_.state_first);
    std::ranges::copy(whole.subspan(first, elements),
                      optimizer_->state().subspan(buffer * elements).begin());
  }
}

// Copies elements [first, first + out.size()) of the whole state. In a sharded stage the state of
// the stage is gathered temporarily.
Status CpuBackend::GatherState(std::int64_t first, std::span<float> out) {
  std::span<const float> state = optimizer_->state();
  std::vector<float> of_stage;
  if (shards_ && !pipeline_) return shards_->GatherState(state, first, out);
  if (shards_) {
    of_stage.resize(
        static_cast<std::size_t>(state_buffers_ * pipeline_->stage().own().state_elements));
    GACCD_RETURN_IF_ERROR(shards_->GatherState(state, 0, of_stage));
    state = of_stage;
  }
  if (pipeline_) return pipeline_->GatherState(MakeOwnValuesReader(state), first, out);
  std::ranges::copy(state.subspan(static_cast<std::size_t>(first), out.size()), out.begin());
  return Status::Ok();
}

// Does not touch pages of other stages.
void CpuBackend::CopyInStage(EngineBuffer to, std::span<const float> from) {
  const std::span<float> whole = Buffer(to);
  for (const std::span<float> part : replica_->UsedParts(whole)) {
    std::ranges::copy(
        from.subspan(static_cast<std::size_t>(part.data() - whole.data()), part.size()),
        part.begin());
  }
}

Status CpuBackend::RunStage(const BatchView& batch, std::int64_t micro_batch,
                            std::int64_t segment) {
  using Message = Replica::Message;
  const bool last = pipeline_->stage().last();
  if (segment == 1 && last) return Status::Ok();  // done with the forward
  const std::int64_t place = micro_batch % in_flight_;
  const BatchSize size = segment == 0 ? batch.size() : replica_->StageSize(place);
  if (segment == 2) {  // of weights: nothing is exchanged
    return replica_
        ->RunStage(batch, place, segment, control_->inputs.prediction_weight, micro_batch == 0)
        .status();
  }
  const auto message = [&](Message which) { return replica_->StageMessage(which, size, place); };
  GACCD_ASSIGN_OR_RETURN(const MutableBuffer received,
                         message(segment == 0 ? Message::kReceived : Message::kReceivedGradient));
  GACCD_RETURN_IF_ERROR(pipeline_->Receive(received, segment == 0 ? -1 : 1));
  GACCD_ASSIGN_OR_RETURN(const LossSums found,
                         replica_->RunStage(batch, place, segment,
                                            control_->inputs.prediction_weight, micro_batch == 0));
  if (segment == 0 && !last) {
    GACCD_ASSIGN_OR_RETURN(const MutableBuffer sent, message(Message::kSent));
    return pipeline_->Send(sent, 1);
  }
  UpdateSums& sums = control_->sums;
  sums.loss += found.loss_sum;
  sums.divisor += found.divisor;
  if (last) sums.samples += static_cast<double>(batch.samples);
  GACCD_ASSIGN_OR_RETURN(const MutableBuffer gradient, message(Message::kSentGradient));
  return pipeline_->Send(gradient, -1);
}

Result<Evaluation> CpuBackend::Evaluate(const BatchView& batch) {
  if (!pipeline_) return replica_->Evaluate(batch);
  using Message = Replica::Message;
  const auto message = [&](Message which) {
    return replica_->StageEvaluation(which, batch.size());
  };
  GACCD_ASSIGN_OR_RETURN(const MutableBuffer received, message(Message::kReceived));
  GACCD_RETURN_IF_ERROR(pipeline_->Receive(received, -1));
  GACCD_ASSIGN_OR_RETURN(Evaluation found, replica_->Evaluate(batch));
  GACCD_ASSIGN_OR_RETURN(const MutableBuffer sent, message(Message::kSent));
  GACCD_RETURN_IF_ERROR(pipeline_->Send(sent, 1));
  GACCD_RETURN_IF_ERROR(pipeline_->FlushSends());
  return found;
}

}  // namespace gaccd
