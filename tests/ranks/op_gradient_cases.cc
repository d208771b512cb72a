// The operations of collectives/ops as cases of op_gradients.h.
#include <array>
#include <numeric>

#include "collectives/ops/all_gather.h"
#include "collectives/ops/all_reduce_mean.h"
#include "collectives/ops/all_reduce_sum.h"
#include "collectives/ops/broadcast.h"
#include "collectives/ops/reduce_scatter.h"
#include "tests/ranks/op_gradients.h"

namespace gaccd::testing {
namespace {

using collectives::GradConvention;
using collectives::RaggedRows;
constexpr auto kPerRank = GradConvention::kPerRankLoss;
constexpr auto kReplicated = GradConvention::kReplicatedLoss;

Loss LossOf(GradConvention convention) {
  return convention == kPerRank ? Loss::kPerRank : Loss::kReplicated;
}

std::vector<std::int64_t> Everywhere(const Communicator& comm, std::int64_t elements) {
  return std::vector<std::int64_t>(static_cast<std::size_t>(comm.size()), elements);
}

// Rows of width 2: 3, 0, 5, 1 rows, and again from the start for more than four ranks.
Result<RaggedRows> SomeRows(const Communicator& comm) {
  constexpr std::array<std::int64_t, 4> kRows = {3, 0, 5, 1};
  std::vector<std::int64_t> rows;
  for (std::size_t r = 0; r < static_cast<std::size_t>(comm.size()); ++r) {
    rows.push_back(kRows[r % kRows.size()]);
  }
  return RaggedRows::Make(rows, 2);
}

// An operation whose x and y have the same size on all ranks, with a backward that may come from
// another operation: so wrong gradients are made.
template <typename Forward, typename Backward>
OpUnderTest SameSize(const Communicator& comm, Forward& forward, Backward& backward) {
  return {Everywhere(comm, 5), Everywhere(comm, 5),
          [&](ConstBuffer x, MutableBuffer y) { return forward.Forward(x, y); },
          [&](ConstBuffer dy, MutableBuffer dx) { return backward.Backward(dy, dx); }};
}

template <GradConvention kLoss, GradConvention kBackward>
Status Sum(Communicator& comm) {
  collectives::AllReduceSum forward(comm);
  collectives::AllReduceSum backward(comm, kBackward);
  return CheckGradient(comm, LossOf(kLoss), SameSize(comm, forward, backward));
}

template <GradConvention kLoss, GradConvention kBackward, std::int64_t kBackwardCount = 7>
Status Mean(Communicator& comm) {
  collectives::AllReduceMean op(comm, kBackward);
  return CheckGradient(
      comm, LossOf(kLoss),
      {Everywhere(comm, 5), Everywhere(comm, 5),
       [&](ConstBuffer x, MutableBuffer y) { return op.Forward(x, 7, y); },
       [&](ConstBuffer dy, MutableBuffer dx) { return op.Backward(dy, kBackwardCount, dx); }});
}

template <GradConvention kLoss, GradConvention kBackward>
Status Gather(Communicator& comm) {
  GACCD_ASSIGN_OR_RETURN(const RaggedRows rows, SomeRows(comm));
  collectives::AllGather op(comm, rows, kBackward);
  const std::vector<std::int64_t> mine(rows.elements().begin(), rows.elements().end());
  return CheckGradient(comm, LossOf(kLoss),
                       {mine, Everywhere(comm, rows.total_elements()),
                        [&](ConstBuffer x, MutableBuffer y) { return op.Forward(x, y); },
                        [&](ConstBuffer dy, MutableBuffer dx) { return op.Backward(dy, dx); }});
}

template <Loss kLoss>
Status Scatter(Communicator& comm) {
  GACCD_ASSIGN_OR_RETURN(const RaggedRows rows, SomeRows(comm));
  collectives::ReduceScatter op(comm, rows);
  const std::vector<std::int64_t> mine(rows.elements().begin(), rows.elements().end());
  return CheckGradient(comm, kLoss,
                       {Everywhere(comm, rows.total_elements()), mine,
                        [&](ConstBuffer x, MutableBuffer y) { return op.Forward(x, y); },
                        [&](ConstBuffer dy, MutableBuffer dx) { return op.Backward(dy, dx); }});
}

// Two operations in a row are a third one, in both directions.
template <GradConvention kLoss>
Status ScatterThenGather(Communicator& comm) {
  GACCD_ASSIGN_OR_RETURN(const RaggedRows rows, SomeRows(comm));
  collectives::ReduceScatter scatter(comm, rows);
  collectives::AllGather gather(comm, rows, kLoss);
  std::vector<double> part(static_cast<std::size_t>(rows.elements_of(comm.rank())));
  const auto whole = Everywhere(comm, rows.total_elements());
  return CheckGradient(comm, LossOf(kLoss),
                       {whole, whole,
                        [&](ConstBuffer x, MutableBuffer y) {
                          GACCD_RETURN_IF_ERROR(scatter.Forward(x, View(std::span(part))));
                          return gather.Forward(View(std::span(part)), y);
                        },
                        [&](ConstBuffer dy, MutableBuffer dx) {
                          GACCD_RETURN_IF_ERROR(gather.Backward(dy, View(std::span(part))));
                          return scatter.Backward(View(std::span(part)), dx);
                        }});
}

template <GradConvention kLoss, GradConvention kBackward>
Status FromEachRoot(Communicator& comm) {
  for (int root = 0; root < comm.size(); ++root) {
    collectives::Broadcast op(comm, root, kBackward);
    GACCD_RETURN_IF_ERROR(CheckGradient(comm, LossOf(kLoss), SameSize(comm, op, op)));
  }
  return Status::Ok();
}

constexpr std::array<GradientCase, 12> kCases = {{
    {"AllReduceSum, loss per rank", Sum<kPerRank, kPerRank>},
    {"AllReduceSum, replicated loss", Sum<kReplicated, kReplicated>},
    {"AllReduceMean, loss per rank", Mean<kPerRank, kPerRank>},
    {"AllReduceMean, replicated loss", Mean<kReplicated, kReplicated>},
    {"AllGather, loss per rank", Gather<kPerRank, kPerRank>},
    {"AllGather, replicated loss", Gather<kReplicated, kReplicated>},
    {"ReduceScatter, loss per rank", Scatter<Loss::kPerRank>},
    {"ReduceScatter, one loss of all rows", Scatter<Loss::kSharded>},
    {"ReduceScatter then AllGather, loss per rank", ScatterThenGather<kPerRank>},
    {"ReduceScatter then AllGather, replicated loss", ScatterThenGather<kReplicated>},
    {"Broadcast, loss per rank", FromEachRoot<kPerRank, kPerRank>},
    {"Broadcast, replicated loss", FromEachRoot<kReplicated, kReplicated>},
}};

constexpr std::array<GradientCase, 7> kWrongCases = {{
    {"AllReduceSum, loss per rank, but identity", Sum<kPerRank, kReplicated>},
    {"AllReduceSum, replicated loss, but summed", Sum<kReplicated, kPerRank>},
    {"AllReduceMean, replicated loss, but not divided", Mean<kReplicated, kReplicated, 1>},
    {"AllGather, loss per rank, but own rows only", Gather<kPerRank, kReplicated>},
    {"AllGather, replicated loss, but summed", Gather<kReplicated, kPerRank>},
    {"Broadcast, loss per rank, but not summed", FromEachRoot<kPerRank, kReplicated>},
    {"Broadcast, replicated loss, but summed", FromEachRoot<kReplicated, kPerRank>},
}};

}  // namespace

std::span<const GradientCase> GradientCases() { return kCases; }
std::span<const GradientCase> WrongGradientCases() { return kWrongCases; }

}  // namespace gaccd::testing
