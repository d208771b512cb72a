// Collective operations as functions: a graph with them runs on every rank of a communicator, with
// the same nodes in the same order, also on a rank without rows.
//
// x_r: input of rank r; y_r: output of rank r; dy_r, dx_r: derivatives of the objective J with
// respect to them. The convention is an argument:
//   kPerRankLoss (default)  J = sum over ranks of L_r(y_r): each rank has its own loss, and the
//                           objective is their sum. dy_r = dL_r/dy_r.
//   kReplicatedLoss         J = L(y): every rank computes the same loss from the same y, and it
//                           counts once. dy_r = dL/dy is the same on every rank.
//
//   function        forward                backward, kPerRankLoss    backward, kReplicatedLoss
//   AllReduceSum    y = sum_r x_r          dx = sum_r dy_r           dx = dy
//   AllReduceMean   y = sum_r x_r / n      dx = sum_r dy_r / n       dx = dy / n
//   AllGather       y = rows of all ranks  dx = own rows of          dx = own rows of dy
//                                               sum_r dy_r
//   ReduceScatter   y_s = rows of s of     dx = dy of all ranks, gathered (for both: only the owner
//                         sum_r x_r             of a row has its cotangent)
//   Broadcast       y = x of the root      root: dx = sum_r dy_r     root: dx = dy
//                                          others: dx = 0            others: dx = 0
//
// The wrong convention silently multiplies gradients by the number of ranks or loses the
// contributions of other ranks. tests/ranks/op_gradients.h checks both by finite differences.
//
// Rows are the first dimension. Their number may differ by rank and may be 0. Values are f32, sums
// and reduce-scatters also f64; AllGather and Broadcast accept any type, without gradient for
// integers. Graphs of models may contain collectives for training only: ranks run different numbers
// of evaluation batches. What an update sends between ranks is recorded in
// daemon/engine/update_graph.h.
#pragma once

#include <cstdint>
#include <vector>

#include "daemon/autograd/function.h"
#include "daemon/ops/function_row.h"

namespace gaccd {

enum class GradConvention : std::uint8_t { kPerRankLoss, kReplicatedLoss };

// The number of rows of each rank, and this rank. The kernels check it against their communicator.
struct RowsByRank {
  std::vector<std::int64_t> rows;
  int rank = 0;
};

// Sums several values in one step: y_i = sum_r x_i,r.
class AllReduceSum : public Function {
 public:
  explicit AllReduceSum(GradConvention convention = GradConvention::kPerRankLoss)
      : convention_(convention) {}
  [[nodiscard]] std::string_view name() const override { return "all_reduce_sum"; }
  [[nodiscard]] bool is_collective() const override { return true; }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override;
  Status Gradient(GradientScope& scope) const override;

 private:
  GradConvention convention_;
};

class AllReduceMean : public Function {
 public:
  // count: n, at least 1; need not be the number of ranks.
  explicit AllReduceMean(std::int64_t count,
                         GradConvention convention = GradConvention::kPerRankLoss)
      : count_(count), convention_(convention) {}
  [[nodiscard]] std::string_view name() const override { return "all_reduce_mean"; }
  [[nodiscard]] bool is_collective() const override { return true; }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override;
  Status Gradient(GradientScope& scope) const override;
  [[nodiscard]] std::int64_t count() const { return count_; }

 private:
  std::int64_t count_;
  GradConvention convention_;
};

class AllGather : public Function {
 public:
  explicit AllGather(RowsByRank rows, GradConvention convention = GradConvention::kPerRankLoss)
      : rows_(std::move(rows)), convention_(convention) {}
  [[nodiscard]] std::string_view name() const override { return "all_gather"; }
  [[nodiscard]] bool is_collective() const override { return true; }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override;
  Status Gradient(GradientScope& scope) const override;
  [[nodiscard]] const RowsByRank& rows() const { return rows_; }

 private:
  RowsByRank rows_;
  GradConvention convention_;
};

class ReduceScatter : public Function {
 public:
  explicit ReduceScatter(RowsByRank rows) : rows_(std::move(rows)) {}
  [[nodiscard]] std::string_view name() const override { return "reduce_scatter"; }
  [[nodiscard]] bool is_collective() const override { return true; }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override;
  Status Gradient(GradientScope& scope) const override;
  [[nodiscard]] const RowsByRank& rows() const { return rows_; }

 private:
  RowsByRank rows_;
};

// x of other ranks is not read, but has the size of the root's.
class Broadcast : public Function {
 public:
  explicit Broadcast(int root, GradConvention convention = GradConvention::kPerRankLoss)
      : root_(root), convention_(convention) {}
  [[nodiscard]] std::string_view name() const override { return "broadcast"; }
  [[nodiscard]] bool is_collective() const override { return true; }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override;
  Status Gradient(GradientScope& scope) const override;
  [[nodiscard]] int root() const { return root_; }

 private:
  int root_;
  GradConvention convention_;
};

// Gradients that are not one of the functions above. They keep the type and have no gradient
// themselves.
//   dx = dy / count
class DivideByCount : public Function {
 public:
  explicit DivideByCount(std::int64_t count) : count_(count) {}
  [[nodiscard]] std::string_view name() const override { return "divide_by_count"; }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override;
  [[nodiscard]] bool can_run_in_place() const override { return true; }
  [[nodiscard]] std::int64_t count() const { return count_; }

 private:
  std::int64_t count_;
};

// dx = own rows of dy, without communication.
class OwnRows : public Function {
 public:
  explicit OwnRows(RowsByRank rows) : rows_(std::move(rows)) {}
  [[nodiscard]] std::string_view name() const override { return "own_rows"; }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override;
  [[nodiscard]] const RowsByRank& rows() const { return rows_; }

 private:
  RowsByRank rows_;
};

// On the root dx = sum_r dy_r, or dy if the loss is replicated; 0 on the others.
class BroadcastGradient : public Function {
 public:
  BroadcastGradient(int root, GradConvention convention) : root_(root), convention_(convention) {}
  [[nodiscard]] std::string_view name() const override { return "broadcast_gradient"; }
  [[nodiscard]] bool is_collective() const override {
    return convention_ == GradConvention::kPerRankLoss;
  }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override;
  [[nodiscard]] int root() const { return root_; }
  [[nodiscard]] GradConvention convention() const { return convention_; }

 private:
  int root_;
  GradConvention convention_;
};

CpuMakeIn MakeCollectiveCpu;
CudaMake MakeCollectiveCuda;
inline constexpr FunctionRow kCollectiveRows[] = {
    {"all_gather", MakeCollectiveCpu, MakeCollectiveCuda},
    {"all_reduce_mean", MakeCollectiveCpu, MakeCollectiveCuda},
    {"all_reduce_sum", MakeCollectiveCpu, MakeCollectiveCuda},
    {"broadcast", MakeCollectiveCpu, MakeCollectiveCuda},
    {"broadcast_gradient", MakeCollectiveCpu, MakeCollectiveCuda},
    {"divide_by_count", MakeCollectiveCpu, MakeCollectiveCuda},
    {"own_rows", MakeCollectiveCpu, MakeCollectiveCuda},
    {"reduce_scatter", MakeCollectiveCpu, MakeCollectiveCuda},
};

}  // namespace gaccd
