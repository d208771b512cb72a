#include "daemon/selftest/exchange_mistakes.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <numeric>
#include <span>
#include <utility>

#include "collectives/comm/forwarding_communicator.h"
#include "daemon/tensor/shard_layout.h"
#include "daemon/train/memory_choice.h"

namespace gaccd {
namespace {

std::span<float> Floats(const MutableBuffer& buffer) {
  return {static_cast<float*>(buffer.data), buffer.count};
}

std::size_t PartOffset(std::span<const std::int64_t> counts, int rank) {
  return static_cast<std::size_t>(
      std::accumulate(counts.begin(), counts.begin() + rank, std::int64_t{0}));
}

void CopyOwn(const ConstBuffer& in, const MutableBuffer& out) {
  if (in.data != out.data && in.count > 0) std::memcpy(out.data, in.data, in.bytes());
}

void MoveToEqualCuts(std::span<const std::int64_t> counts, std::span<float> values) {
  const std::vector<float> right(values.begin(), values.end());
  for (std::size_t rank = 0; rank < counts.size(); ++rank) {
    const std::size_t first = PartOffset(counts, static_cast<int>(rank));
    const std::size_t cut = values.size() * rank / counts.size();
    const auto count = std::min(static_cast<std::size_t>(counts[rank]), values.size() - cut);
    std::ranges::copy(std::span(right).subspan(first, count), values.subspan(cut).begin());
  }
}

// The ranks of a communicator. PipelineExchange splits the world first into pipelines, then into
// ranks of the same stage; and a pipeline into ranks that share a parameter.
enum class Group : std::uint8_t { kWorld, kPipeline, kSameStage, kSharing };

class FaultyCommunicator final : public ForwardingCommunicator {
 public:
  FaultyCommunicator(Communicator& inner, std::unique_ptr<Communicator> owned,
                     ExchangeMistake mistake, Group group)
      : ForwardingCommunicator(inner), owned_(std::move(owned)), mistake_(mistake), group_(group) {}

  Result<std::unique_ptr<Communicator>> Split(int color, int key) override {
    const Group group = group_ == Group::kPipeline ? Group::kSharing
                        : splits_++ == 0           ? Group::kPipeline
                                                   : Group::kSameStage;
    GACCD_ASSIGN_OR_RETURN(std::unique_ptr<Communicator> part, inner().Split(color, key));
    if (part == nullptr) return part;
    Communicator& own = *part;
    return std::unique_ptr<Communicator>(
        std::make_unique<FaultyCommunicator>(own, std::move(part), mistake_, group));
  }

 private:
  // Whether this was split from another communicator and its ranks are on different nodes.
  [[nodiscard]] bool between_nodes() const {
    return owned_ != nullptr && size() > 1 && topology().nodes == size();
  }

  // Whether a sum is skipped.
  [[nodiscard]] bool KeepsOwn(DType dtype) const {
    if (dtype != DType::kF32) return false;
    return (mistake_ == ExchangeMistake::kOwnNode && between_nodes()) ||
           (mistake_ == ExchangeMistake::kOwnPipeline && group_ == Group::kSameStage) ||
           (mistake_ == ExchangeMistake::kOwnShared && group_ == Group::kSharing);
  }
  void Divide(const MutableBuffer& sum) const {
    if (sum.dtype != DType::kF32) return;
    for (float& value : Floats(sum)) value /= static_cast<float>(size());
  }

  Status DoAllReduceSum(ConstBuffer in, MutableBuffer out, StreamHandle stream) override {
    if (KeepsOwn(in.dtype)) {
      CopyOwn(in, out);
      return Status::Ok();
    }
    GACCD_RETURN_IF_ERROR(inner().AllReduceSum(in, out, stream));
    if (mistake_ == ExchangeMistake::kMeanOfPipelines && group_ == Group::kSameStage) Divide(out);
    return Status::Ok();
  }
  Status DoAllGather(ConstBuffer in, std::span<const std::int64_t> counts, MutableBuffer out,
                     StreamHandle stream) override {
    const bool f32 = in.dtype == DType::kF32;
    if (f32 && mistake_ == ExchangeMistake::kOwnPart) {
      CopyOwn(in, {Floats(out).data() + PartOffset(counts, rank()), in.count, in.dtype});
      return Status::Ok();
    }
    GACCD_RETURN_IF_ERROR(inner().AllGather(in, counts, out, stream));
    if (f32 && mistake_ == ExchangeMistake::kEqualCuts) MoveToEqualCuts(counts, Floats(out));
    return Status::Ok();
  }
  Status DoReduceScatter(ConstBuffer in, std::span<const std::int64_t> counts, MutableBuffer out,
                         StreamHandle stream) override {
    if (KeepsOwn(in.dtype)) {
      const auto* values = static_cast<const float*>(in.data);
      CopyOwn({values + PartOffset(counts, rank()), out.count, in.dtype}, out);
      return Status::Ok();
    }
    GACCD_RETURN_IF_ERROR(inner().ReduceScatter(in, counts, out, stream));
    if (mistake_ == ExchangeMistake::kMean) Divide(out);
    return Status::Ok();
  }
  Status DoReceive(MutableBuffer message, int from, StreamHandle stream) override {
    GACCD_RETURN_IF_ERROR(inner().Receive(message, from, stream));
    if (mistake_ != ExchangeMistake::kFirstGradient || from < rank()) return Status::Ok();
    const std::span<float> received = Floats(message);
    if (first_gradient_.empty()) first_gradient_.assign(received.begin(), received.end());
    const std::size_t count = std::min(received.size(), first_gradient_.size());
    std::ranges::copy(std::span(first_gradient_).first(count), received.begin());
    return Status::Ok();
  }

  const std::unique_ptr<Communicator> owned_;  // inner(), or null
  const ExchangeMistake mistake_;
  const Group group_;
  int splits_ = 0;
  std::vector<float> first_gradient_;
};

// Whether the lanes begin where equal cuts of the flat buffers would be. A lane without elements
// has no cut.
bool CutsAreEqual(const ShardGrid& grid, const FlatLayout& layout) {
  const ShardLayout shards = ShardLayout::Make(layout, grid.parts());
  for (int lane = 1; lane < grid.lanes; ++lane) {
    const std::int64_t first = shards.parts()[static_cast<std::size_t>(lane * grid.nodes)].first;
    if (first < layout.size() && first != layout.size() * lane / grid.lanes) return false;
  }
  return true;
}

bool HasTwoMicroBatches(const Plan& plan) {
  for (std::int64_t rank = 0; plan.accum_steps() > 1 && rank < plan.world(); ++rank) {
    if (plan.MicroBatch(rank, 1) > 0) return true;
  }
  return false;
}

}  // namespace

std::string_view Name(ExchangeMistake mistake) {
  switch (mistake) {
    case ExchangeMistake::kOwnPart:
      return "parts not gathered";
    case ExchangeMistake::kMean:
      return "mean over the ranks";
    case ExchangeMistake::kOwnNode:
      return "sum of each node";
    case ExchangeMistake::kEqualCuts:
      return "parts by equal cuts";
    case ExchangeMistake::kFirstGradient:
      return "first gradient received";
    case ExchangeMistake::kMeanOfPipelines:
      return "mean of pipelines";
    case ExchangeMistake::kOwnPipeline:
      return "sum of each pipeline";
    case ExchangeMistake::kOwnShared:
      return "shared by one stage";
  }
  return "";
}

std::vector<ExchangeMistake> ListExchangeMistakes(const Job& job) {
  using enum ExchangeMistake;
  const bool sharded = job.shard != Sharding::kNone;
  if (job.pipeline.stages == 1) {
    return sharded ? std::vector{kOwnPart, kMean, kOwnNode, kEqualCuts}
                   : std::vector<ExchangeMistake>();
  }
  return sharded ? std::vector{kFirstGradient, kOwnShared, kOwnPart, kMean}
                 : std::vector{kFirstGradient, kOwnShared, kMeanOfPipelines, kOwnPipeline};
}

bool HasEffect(ExchangeMistake mistake, const Job& job, const Plan& plan, const Model& model) {
  const std::int64_t nodes = plan.request().nodes;
  const ShardGrid grid = ShardGrid::Make(job.shard, static_cast<int>(nodes),
                                         static_cast<int>(plan.request().gpus_per_node));
  switch (mistake) {
    case ExchangeMistake::kOwnPart:
    case ExchangeMistake::kMean:
      return CountStateParts(job, plan) > 1;
    case ExchangeMistake::kOwnNode:
      return grid.parts() > 1 && nodes > 1 && job.shard != Sharding::kOptimizer;
    case ExchangeMistake::kEqualCuts:
      return !CutsAreEqual(grid, model.layout());
    case ExchangeMistake::kFirstGradient:
      return HasTwoMicroBatches(plan);
    case ExchangeMistake::kMeanOfPipelines:
    case ExchangeMistake::kOwnPipeline:
      return plan.pipelines() > 1;
    case ExchangeMistake::kOwnShared:
      return !model.stage()->shared.empty();
  }
  return false;
}

std::unique_ptr<Communicator> MakeFaultyCommunicator(Communicator& inner, ExchangeMistake mistake) {
  return std::make_unique<FaultyCommunicator>(inner, nullptr, mistake, Group::kWorld);
}

}  // namespace gaccd
