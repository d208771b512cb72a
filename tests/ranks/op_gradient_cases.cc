// The functions of ops/collective/collective.h as cases of op_gradients.h.
#include <array>

#include "daemon/autograd/add.h"
#include "daemon/ops/collective/collective.h"
#include "daemon/ops/layout/reshape.h"
#include "tests/ranks/op_gradients.h"

namespace gaccd::tests {
namespace {

constexpr auto kPerRank = GradConvention::kPerRankLoss;
constexpr auto kReplicated = GradConvention::kReplicatedLoss;
constexpr std::int64_t kWidth = 2;

Loss ToLoss(GradConvention convention) {
  return convention == kPerRank ? Loss::kPerRank : Loss::kReplicated;
}

// Rows: 3, 0, 5, 1, and again from the start for more than four ranks.
RowsByRank SomeRows(const Communicator& comm) {
  constexpr std::array<std::int64_t, 4> kRows = {3, 0, 5, 1};
  RowsByRank rows{.rows = {}, .rank = comm.rank()};
  for (std::size_t r = 0; r < static_cast<std::size_t>(comm.size()); ++r) {
    rows.rows.push_back(kRows[r % kRows.size()]);
  }
  return rows;
}

Shape OwnShape(const RowsByRank& rows) {
  return {rows.rows[static_cast<std::size_t>(rows.rank)], kWidth};
}

Shape WholeShape(const RowsByRank& rows) {
  std::int64_t total = 0;
  for (const std::int64_t count : rows.rows) total += count;
  return {total, kWidth};
}

Result<ValueId> Apply(Graph& graph, std::shared_ptr<const Function> function,
                      std::vector<ValueId> inputs) {
  GACCD_ASSIGN_OR_RETURN(const std::vector<ValueId> outputs,
                         graph.Apply(std::move(function), std::move(inputs)));
  return outputs[0];
}

Record RecordOne(std::shared_ptr<const Function> function) {
  return [function = std::move(function)](Graph& graph, ValueId x) {
    return Apply(graph, function, {x});
  };
}

// kLoss: what the objective is; kBackward: the convention given to the function. Where they differ,
// the gradient is wrong.
template <GradConvention kLoss, GradConvention kBackward>
Status Sum(const GradientRanks& ranks) {
  return CheckGradient(ranks, ToLoss(kLoss), {5},
                       RecordOne(std::make_shared<AllReduceSum>(kBackward)));
}

template <GradConvention kLoss, GradConvention kBackward>
Status Mean(const GradientRanks& ranks) {
  return CheckGradient(ranks, ToLoss(kLoss), {5},
                       RecordOne(std::make_shared<AllReduceMean>(7, kBackward)));
}

template <GradConvention kLoss, GradConvention kBackward>
Status Gather(const GradientRanks& ranks) {
  const RowsByRank rows = SomeRows(ranks.comm);
  return CheckGradient(ranks, ToLoss(kLoss), OwnShape(rows),
                       RecordOne(std::make_shared<AllGather>(rows, kBackward)));
}

// Of a value with two users.
template <GradConvention kLoss>
Status GatherTwice(const GradientRanks& ranks) {
  const RowsByRank rows = SomeRows(ranks.comm);
  return CheckGradient(
      ranks, ToLoss(kLoss), OwnShape(rows), [&](Graph& graph, ValueId x) -> Result<ValueId> {
        const auto gather = std::make_shared<AllGather>(rows, kLoss);
        GACCD_ASSIGN_OR_RETURN(const ValueId value,
                               Apply(graph, std::make_shared<Reshape>(OwnShape(rows)), {x}));
        GACCD_ASSIGN_OR_RETURN(const ValueId once, Apply(graph, gather, {value}));
        GACCD_ASSIGN_OR_RETURN(const ValueId again, Apply(graph, gather, {value}));
        return Apply(graph, std::make_shared<Add>(), {once, again});
      });
}

template <Loss kLoss>
Status Scatter(const GradientRanks& ranks) {
  const RowsByRank rows = SomeRows(ranks.comm);
  return CheckGradient(ranks, kLoss, WholeShape(rows),
                       RecordOne(std::make_shared<ReduceScatter>(rows)));
}

// Two functions in a row are a third one, in both directions.
template <GradConvention kLoss>
Status ScatterThenGather(const GradientRanks& ranks) {
  const RowsByRank rows = SomeRows(ranks.comm);
  return CheckGradient(
      ranks, ToLoss(kLoss), WholeShape(rows), [&](Graph& graph, ValueId x) -> Result<ValueId> {
        GACCD_ASSIGN_OR_RETURN(const ValueId part,
                               Apply(graph, std::make_shared<ReduceScatter>(rows), {x}));
        return Apply(graph, std::make_shared<AllGather>(rows, kLoss), {part});
      });
}

template <GradConvention kLoss, GradConvention kBackward>
Status FromEachRoot(const GradientRanks& ranks) {
  for (int root = 0; root < ranks.comm.size(); ++root) {
    GACCD_RETURN_IF_ERROR(CheckGradient(ranks, ToLoss(kLoss), {5},
                                        RecordOne(std::make_shared<Broadcast>(root, kBackward))));
  }
  return Status::Ok();
}

constexpr std::array<GradientCase, 14> kCases = {{
    {"AllReduceSum, loss per rank", Sum<kPerRank, kPerRank>},
    {"AllReduceSum, replicated loss", Sum<kReplicated, kReplicated>},
    {"AllReduceMean, loss per rank", Mean<kPerRank, kPerRank>},
    {"AllReduceMean, replicated loss", Mean<kReplicated, kReplicated>},
    {"AllGather, loss per rank", Gather<kPerRank, kPerRank>},
    {"AllGather, replicated loss", Gather<kReplicated, kReplicated>},
    {"AllGather twice, loss per rank", GatherTwice<kPerRank>},
    {"AllGather twice, replicated loss", GatherTwice<kReplicated>},
    {"ReduceScatter, loss per rank", Scatter<Loss::kPerRank>},
    {"ReduceScatter, one loss of all rows", Scatter<Loss::kSharded>},
    {"ReduceScatter then AllGather, loss per rank", ScatterThenGather<kPerRank>},
    {"ReduceScatter then AllGather, replicated loss", ScatterThenGather<kReplicated>},
    {"Broadcast, loss per rank", FromEachRoot<kPerRank, kPerRank>},
    {"Broadcast, replicated loss", FromEachRoot<kReplicated, kReplicated>},
}};

constexpr std::array<GradientCase, 8> kWrongCases = {{
    {"AllReduceSum, loss per rank, but identity", Sum<kPerRank, kReplicated>},
    {"AllReduceSum, replicated loss, but summed", Sum<kReplicated, kPerRank>},
    {"AllReduceMean, loss per rank, but not summed", Mean<kPerRank, kReplicated>},
    {"AllReduceMean, replicated loss, but summed", Mean<kReplicated, kPerRank>},
    {"AllGather, loss per rank, but own rows only", Gather<kPerRank, kReplicated>},
    {"AllGather, replicated loss, but summed", Gather<kReplicated, kPerRank>},
    {"Broadcast, loss per rank, but not summed", FromEachRoot<kPerRank, kReplicated>},
    {"Broadcast, replicated loss, but summed", FromEachRoot<kReplicated, kPerRank>},
}};

}  // namespace

std::span<const GradientCase> GradientCases() { return kCases; }
std::span<const GradientCase> WrongGradientCases() { return kWrongCases; }

}  // namespace gaccd::tests
