#include "daemon/device/cuda/matmul_spec.h"

#include "collectives/base/strings.h"

namespace gaccd {
std::string ToText(const MatmulCudaSpec& spec) {
  return StrCat(
      "product [", spec.m, ", ", spec.k, "] x [", spec.k, ", ", spec.n, "]: A ", Name(spec.ab),
      spec.transpose_a ? " transposed" : "", ", B ", Name(spec.ab),
      spec.transpose_b ? " transposed" : "", ", C ", Name(spec.c),
      spec.accumulate ? " accumulated" : "", spec.bias ? ", bias" : "", spec.relu ? ", ReLU" : "",
      spec.column_sums ? ", column sums of A" : "",
      spec.multiprocessors > 0 ? StrCat(", on ", spec.multiprocessors, " multiprocessors") : "");
}

Status Check(const MatmulCudaSpec& spec) {
  const auto wrong = [&](std::string_view rule) {
    return Status(ErrorKind::kInternal, StrCat(ToText(spec), ": ", rule));
  };
  const bool epilogue = spec.bias || spec.relu;
  if (spec.m < 1 || spec.n < 1 || spec.k < 1) return wrong("sizes must be at least 1");
  if (spec.multiprocessors < 0) return wrong("multiprocessors must be at least 0");
  if (!IsFloat(spec.ab) || !IsFloat(spec.c)) return wrong("types must be f32, bf16 or fp16");
  if (spec.accumulate && (spec.c != DType::kF32 || epilogue)) {
    return wrong("only an f32 C without bias and ReLU can be accumulated");
  }
  if (spec.column_sums && (!spec.transpose_a || spec.c != DType::kF32 || epilogue)) {
    return wrong("column sums want a transposed A and an f32 C without bias and ReLU");
  }
  return Status::Ok();
}

}  // namespace gaccd
