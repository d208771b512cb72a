#include "daemon/device/cuda/matmul_spec.h"

#include "collectives/base/strings.h"

namespace gaccd {
namespace {

std::string_view Name(MatmulGelu gelu) {
  switch (gelu) {
    case MatmulGelu::kNone:
      return "";
    case MatmulGelu::kApply:
      return ", GELU";
    case MatmulGelu::kKeep:
      return ", GELU and its input";
    case MatmulGelu::kGradient:
      return ", gradient of GELU";
  }
  return "";
}

}  // namespace

std::string ToText(const MatmulCudaSpec& spec) {
  return StrCat(
      "product [", spec.m, ", ", spec.k, "] x [", spec.k, ", ", spec.n, "]: A ", Name(spec.ab),
      spec.transpose_a ? " transposed" : "", ", B ", Name(spec.ab),
      spec.transpose_b ? " transposed" : "", ", C ", Name(spec.c),
      spec.accumulate ? " accumulated" : "", spec.bias ? ", bias" : "", spec.relu ? ", ReLU" : "",
      spec.column_sums ? ", column sums of A" : "",
      spec.column_sums_of_b ? ", column sums of B" : "", Name(spec.gelu),
      spec.multiprocessors > 0 ? StrCat(", on ", spec.multiprocessors, " multiprocessors") : "",
      spec.stride_a > 0 ? StrCat(", a row of A every ", spec.stride_a) : "",
      spec.stride_c > 0 ? StrCat(", a row of C every ", spec.stride_c) : "");
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
    return wrong("column sums need a transposed A and an f32 C without bias and ReLU");
  }
  if ((spec.stride_a != 0 && spec.stride_a <= spec.columns_a()) ||
      (spec.stride_c != 0 && spec.stride_c <= spec.n)) {
    return wrong("a stride of rows must be more than their columns, or 0");
  }
  if (spec.column_sums_of_b &&
      (spec.column_sums || spec.transpose_b || spec.c != DType::kF32 || epilogue)) {
    return wrong("column sums of B need B not transposed, and an f32 C without other epilogues");
  }
  if (spec.gelu != MatmulGelu::kNone && (spec.relu || spec.accumulate || spec.writes_sums())) {
    return wrong("GELU goes with a bias and nothing else");
  }
  if (spec.gelu != MatmulGelu::kNone && spec.c == DType::kF32) {
    return wrong("GELU needs a C of 16 bits");
  }
  if (spec.gelu == MatmulGelu::kGradient && spec.bias) return wrong("a gradient has no bias");
  if (spec.has_aux() && spec.n % kAuxColumns != 0) {
    return wrong(StrCat("GELU's input needs columns in multiples of ", kAuxColumns));
  }
  return Status::Ok();
}

}  // namespace gaccd
