#include "daemon/engine/pipeline_exchange.h"

#include <algorithm>
#include <bit>

#include "collectives/base/strings.h"

namespace gaccd {
namespace {

// Elements gathered at once: 1 MiB.
constexpr std::int64_t kGathered = std::int64_t{1} << 18;

template <typename T>
std::span<T> Subspan(std::span<T> values, std::int64_t first, std::int64_t count) {
  return values.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count));
}

}  // namespace

Result<std::unique_ptr<PipelineExchange>> PipelineExchange::Make(Communicator& comm,
                                                                 const PipelineStage& stage,
                                                                 const FlatLayout& layout,
                                                                 const FlatLayout& places,
                                                                 std::int64_t state_buffers) {
  const int stages = static_cast<int>(stage.stages());
  if (comm.size() % stages != 0) {
    return Status(ErrorKind::kConfig, StrCat("pipeline: expected a multiple of ", stages,
                                             " ranks, one per stage, found ", comm.size()));
  }
  std::unique_ptr<PipelineExchange> made(
      new PipelineExchange(stage, layout, places, state_buffers));
  const int own = static_cast<int>(stage.stage);
  const int pipeline = comm.rank() / stages;
  // Each split is collective over ranks for which an earlier one may not have failed.
  auto in_pipeline = comm.Split(pipeline, own);
  auto of_stage = comm.Split(own, pipeline);
  GACCD_ASSIGN_OR_RETURN(made->pipeline_, std::move(in_pipeline));
  Status failed = of_stage.status();
  if (of_stage.ok()) made->same_stage_ = *std::move(of_stage);
  for (const SharedParameter& shared : stage.shared) {
    const bool uses = std::ranges::count(shared.stages, stage.stage) > 0;
    auto sharing = made->pipeline_->Split(uses ? 0 : -1, own);
    if (failed.ok()) failed = sharing.status();
    if (sharing.ok()) made->sharing_.push_back(*std::move(sharing));
  }
  GACCD_RETURN_IF_ERROR(failed);
  return made;
}

std::span<float> PipelineExchange::Own(std::span<float> whole) const {
  return Subspan(whole, stage_.own().first, stage_.own().elements);
}

MutableBuffer PipelineExchange::Shared(const MutableBuffer& whole,
                                       const SharedParameter& shared) const {
  const FlatEntry& entry = places_.entries()[shared.parameter];
  return {static_cast<float*>(whole.data) + entry.offset, static_cast<std::size_t>(entry.elements),
          whole.dtype, whole.memory};
}

Status PipelineExchange::Send(ConstBuffer message, int step) {
  if (message.count == 0) return Status::Ok();
  return pipeline_->Send(message, pipeline_->rank() + step);
}

Status PipelineExchange::Receive(MutableBuffer message, int step) {
  if (message.count == 0) return Status::Ok();
  return pipeline_->Receive(message, pipeline_->rank() + step);
}

Status PipelineExchange::RecordReduceShared(UpdateGraph& graph, const MutableBuffer& gradients,
                                            StreamHandle stream) const {
  for (std::size_t i = 0; i < sharing_.size(); ++i) {
    if (!sharing_[i]) continue;
    const MutableBuffer shared = Shared(gradients, stage_.shared[i]);
    GACCD_RETURN_IF_ERROR(graph.AllReduceSum(*sharing_[i], {&shared, 1}, stream));
  }
  return Status::Ok();
}

Status PipelineExchange::RecordSendShared(UpdateGraph& graph, const MutableBuffer& parameters,
                                          StreamHandle stream) const {
  for (std::size_t i = 0; i < sharing_.size(); ++i) {
    if (!sharing_[i]) continue;
    GACCD_RETURN_IF_ERROR(
        graph.Broadcast(*sharing_[i], Shared(parameters, stage_.shared[i]), stream));
  }
  return Status::Ok();
}

Status PipelineExchange::RecordGatherByStage(UpdateGraph& graph, const MutableBuffer& by_stage,
                                             StreamHandle stream) const {
  return graph.AllGather(*pipeline_, by_stage, std::vector<std::int64_t>(stage_.stages(), 1),
                         stream);
}

Result<std::uint64_t> PipelineExchange::SumDigests(std::uint64_t own) {
  GACCD_ASSIGN_OR_RETURN(const std::vector<std::int64_t> all,
                         GatherAll(*pipeline_, std::bit_cast<std::int64_t>(own)));
  std::uint64_t sum = 0;
  for (const std::int64_t digest : all) sum += std::bit_cast<std::uint64_t>(digest);
  return sum;
}

Status PipelineExchange::Poll() {
  GACCD_RETURN_IF_ERROR(pipeline_->Poll());
  GACCD_RETURN_IF_ERROR(same_stage_->Poll());
  for (const auto& sharing : sharing_) {
    if (sharing) GACCD_RETURN_IF_ERROR(sharing->Poll());
  }
  return Status::Ok();
}

void PipelineExchange::CancelPending(const Status& error) {
  pipeline_->CancelPending(error);
  same_stage_->CancelPending(error);
  for (const auto& sharing : sharing_) {
    if (sharing) sharing->CancelPending(error);
  }
}

Status PipelineExchange::GatherParts(std::span<const Range> parts, const OwnValues& own,
                                     std::int64_t begin, std::int64_t first, std::span<float> out) {
  const Range& mine = parts[stage_.stage];
  const std::int64_t elements = parts.back().first + parts.back().elements;
  std::vector<float> piece(static_cast<std::size_t>(std::min(elements, kGathered)));
  std::vector<float> from_here(piece.size());
  std::vector<std::int64_t> counts(parts.size());
  // The intersection of [a, a + n) and [b, b + m).
  const auto common = [](Range a, Range b) {
    const std::int64_t from = std::max(a.first, b.first);
    const std::int64_t to = std::min(a.first + a.elements, b.first + b.elements);
    return Range{from, std::max<std::int64_t>(0, to - from)};
  };
  for (std::int64_t i = 0; i < elements; i += kGathered) {
    const Range here = {i, std::min(kGathered, elements - i)};
    std::ranges::transform(parts, counts.begin(),
                           [&](const Range& part) { return common(part, here).elements; });
    const Range given = common(mine, here);
    const auto gathered = Subspan(std::span(piece), 0, here.elements);
    const auto values = Subspan(std::span(from_here), 0, given.elements);
    if (!values.empty()) GACCD_RETURN_IF_ERROR(own(given.first - mine.first, values));
    GACCD_RETURN_IF_ERROR(
        pipeline_->AllGather(View(std::span<const float>(values)), counts, View(gathered)));
    const Range wanted = common({first, std::ssize(out)}, {begin + i, here.elements});
    if (wanted.elements == 0) continue;
    std::ranges::copy(Subspan(gathered, wanted.first - begin - i, wanted.elements),
                      Subspan(out, wanted.first - first, wanted.elements).begin());
  }
  return Status::Ok();
}

Status PipelineExchange::GatherFlat(const OwnValues& own, std::int64_t first,
                                    std::span<float> out) {
  std::vector<Range> parts;
  for (const ShardPart& part : stage_.parts) parts.push_back({part.first, part.elements});
  return GatherParts(parts, own, 0, first, out);
}

Status PipelineExchange::GatherState(const OwnValues& own, std::int64_t first,
                                     std::span<float> out) {
  std::vector<Range> parts;
  for (const ShardPart& part : stage_.parts) {
    parts.push_back({part.state_first, part.state_elements});
  }
  const std::int64_t elements = stage_.own().state_elements;
  for (std::int64_t buffer = 0; buffer < state_buffers_; ++buffer) {
    const auto of_buffer = [&](std::int64_t begin, std::span<float> values) {
      return own(buffer * elements + begin, values);
    };
    GACCD_RETURN_IF_ERROR(
        GatherParts(parts, of_buffer, buffer * layout_.trainable_size(), first, out));
  }
  return Status::Ok();
}

}  // namespace gaccd
