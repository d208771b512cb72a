// Embedding: row n of the output is row ids[n] of a table.  table [V, D], N ids in [0, V):
//   y[n] = table[ids[n]],   dtable[v] += sum of dy[n] over the n with ids[n] = v
// The sum is in order on the CPU, by parts on the GPU (kernels_cuda.h). Data is checked when it is
// opened, so an id outside [0, V) is a bug: its row of y is NaN and it has no gradient; nothing
// outside the table is accessed.
//
// AddPositions: y[b T + t] = x[b T + t] + table[t], for B sequences of T rows each; table [P, D], P
// >= T. dx = dy; dtable[t] += sum of dy[b T + t] over b, in order, and nothing for t >= T.
#pragma once

#include "daemon/autograd/function.h"
#include "daemon/ops/function_row.h"

namespace gaccd {

// Inputs: ids i32 [N] or [B, T] (then N = B T), table f32 [V, D]. Output: [N, D] of `dtype`.
class Embedding : public Function {
 public:
  // padding: an id whose row gets no gradient from this function; -1: none.
  explicit Embedding(DType dtype = DType::kF32, std::int32_t padding = -1)
      : dtype_(dtype), padding_(padding) {}

  [[nodiscard]] std::string_view name() const override { return "embedding"; }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override;
  Status Gradient(GradientScope& scope) const override;

 private:
  DType dtype_;
  std::int32_t padding_;
};

// Inputs: dy [N, D], ids. Output: dtable f32 [rows, D].
class EmbeddingGradient : public Function {
 public:
  explicit EmbeddingGradient(std::int64_t rows) : rows_(rows) {}

  [[nodiscard]] std::string_view name() const override { return "embedding_gradient"; }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override;
  [[nodiscard]] bool can_accumulate(std::size_t) const override { return true; }

 private:
  std::int64_t rows_;
};

// Inputs: x [B T, D], table f32 [P, D].
class AddPositions : public Function {
 public:
  explicit AddPositions(std::int64_t length) : length_(length) {}

  [[nodiscard]] std::string_view name() const override { return "add_positions"; }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override;
  Status Gradient(GradientScope& scope) const override;
  [[nodiscard]] bool can_run_in_place() const override { return true; }

  [[nodiscard]] std::int64_t length() const { return length_; }

 private:
  std::int64_t length_;  // T
};

// Input: dy [B T, D]. Output: dtable f32 [rows, D], for the first rows of each sequence if rows <
// T.
class PositionsGradient : public Function {
 public:
  PositionsGradient(std::int64_t length, std::int64_t rows) : length_(length), rows_(rows) {}

  [[nodiscard]] std::string_view name() const override { return "positions_gradient"; }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override;
  [[nodiscard]] bool can_accumulate(std::size_t) const override { return true; }

  [[nodiscard]] std::int64_t length() const { return length_; }

 private:
  std::int64_t length_;  // T
  std::int64_t rows_;    // P
};

CpuMake MakeEmbeddingCpu, MakeEmbeddingGradientCpu, MakeAddPositionsCpu, MakePositionsGradientCpu;
CudaMake MakeEmbeddingCuda, MakeEmbeddingGradientCuda, MakeAddPositionsCuda,
    MakePositionsGradientCuda;
inline constexpr FunctionRow kEmbeddingRows[] = {
    {"embedding", MakeEmbeddingCpu, MakeEmbeddingCuda},
    {"embedding_gradient", MakeEmbeddingGradientCpu, MakeEmbeddingGradientCuda},
    {"add_positions", MakeAddPositionsCpu, MakeAddPositionsCuda},
    {"positions_gradient", MakePositionsGradientCpu, MakePositionsGradientCuda},
};

}  // namespace gaccd
