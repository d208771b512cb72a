// Joins two matrices by columns:  a [N, A], b [N, B] -> y [N, A + B]
//   y[n] = (a[n], b[n]);  da[n] = the first A of dy[n], db[n] = the others
#pragma once

#include "daemon/autograd/function.h"
#include "daemon/ops/function_row.h"

namespace gaccd {

class JoinColumns : public Function {
 public:
  [[nodiscard]] std::string_view name() const override { return "join_columns"; }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override;
  Status Gradient(GradientScope& scope) const override;
};

// Input: dy. Outputs: da, db.
class JoinColumnsGradient : public Function {
 public:
  explicit JoinColumnsGradient(std::int64_t first) : first_(first) {}

  [[nodiscard]] std::string_view name() const override { return "join_columns_gradient"; }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override;

 private:
  std::int64_t first_;  // A
};

KernelResult MakeJoinColumnsCpu(const KernelRequest& request);
KernelResult MakeJoinColumnsGradientCpu(const KernelRequest& request);
KernelResult MakeJoinColumnsCuda(const CudaRequest& request);
KernelResult MakeJoinColumnsGradientCuda(const CudaRequest& request);
inline constexpr FunctionRow kJoinColumnsRows[] = {
    {"join_columns", MakeJoinColumnsCpu, MakeJoinColumnsCuda},
    {"join_columns_gradient", MakeJoinColumnsGradientCpu, MakeJoinColumnsGradientCuda},
};

}  // namespace gaccd
