// One row for each sequence of T rows:  x [B T, D], y [B, D]
//   first_rows  y[b] = x[b T];                     dx[b T] = dy[b], 0 in all other rows
//   mean_rows   y[b] = sum_{t < L} x[b T + t] / L;  dx[b T + t] = dy[b] / L for t < L, else 0
// L is the length of sequence b, T without lengths; y[b] = 0 if it is 0.
#pragma once

#include "daemon/autograd/function.h"
#include "daemon/ops/function_row.h"

namespace gaccd {

enum class PoolKind : std::uint8_t { kFirst, kMean };

// Inputs: x f32, bf16 or fp16 and, for the mean, optional lengths i32 [B] in [0, T] (other values
// are clamped).
class PoolRows : public Function {
 public:
  PoolRows(PoolKind kind, std::int64_t length) : kind_(kind), length_(length) {}

  [[nodiscard]] std::string_view name() const override {
    return kind_ == PoolKind::kFirst ? "first_rows" : "mean_rows";
  }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override;
  Status Gradient(GradientScope& scope) const override;

  [[nodiscard]] PoolKind kind() const { return kind_; }
  [[nodiscard]] std::int64_t length() const { return length_; }

 private:
  PoolKind kind_;
  std::int64_t length_;  // T
};

// Inputs: dy and lengths, if any. Output: dx.
class PoolRowsGradient : public Function {
 public:
  PoolRowsGradient(PoolKind kind, std::int64_t length) : kind_(kind), length_(length) {}

  [[nodiscard]] std::string_view name() const override {
    return kind_ == PoolKind::kFirst ? "first_rows_gradient" : "mean_rows_gradient";
  }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override;

  [[nodiscard]] PoolKind kind() const { return kind_; }
  [[nodiscard]] std::int64_t length() const { return length_; }

 private:
  PoolKind kind_;
  std::int64_t length_;  // T
};

CpuMake MakePoolRowsCpu, MakePoolRowsGradientCpu;
CudaMake MakePoolRowsCuda, MakePoolRowsGradientCuda;
inline constexpr FunctionRow kPoolRows[] = {
    {"first_rows", MakePoolRowsCpu, MakePoolRowsCuda},
    {"first_rows_gradient", MakePoolRowsGradientCpu, MakePoolRowsGradientCuda},
    {"mean_rows", MakePoolRowsCpu, MakePoolRowsCuda},
    {"mean_rows_gradient", MakePoolRowsGradientCpu, MakePoolRowsGradientCuda},
};

}  // namespace gaccd
