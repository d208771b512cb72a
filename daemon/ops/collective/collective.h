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
//   AllGather       y = rows of all ranks  dx = own rows of          dx = own rows of dy
//                                               sum_r dy_r
//   ReduceScatter   y_s = rows of s of     dx = dy of all ranks, gathered (for both: only the owner
//                         sum_r x_r             of a row has its cotangent)
//
// The wrong convention silently multiplies gradients by the number of ranks or loses the
// contributions of other ranks. tests/ranks/op_gradients.h checks both by finite differences.
//
// Rows are the first dimension. Their number may differ by rank and may be 0. Values are f32;
// AllGather accepts any type, without gradient for integers. Only training graphs may
// contain collectives: ranks run different numbers of evaluation batches.
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

// Gradient of AllGather for a replicated loss: keeps the type and has no gradient itself.
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

KernelResult MakeCollectiveCpu(const KernelRequest& request, const CpuEnvironment& environment);
KernelResult MakeCollectiveCuda(const CudaRequest& request);
inline constexpr FunctionRow kCollectiveRows[] = {
    {"all_gather", MakeCollectiveCpu, MakeCollectiveCuda},
    {"all_reduce_sum", MakeCollectiveCpu, MakeCollectiveCuda},
    {"own_rows", MakeCollectiveCpu, MakeCollectiveCuda},
    {"reduce_scatter", MakeCollectiveCpu, MakeCollectiveCuda},
};

}  // namespace gaccd
