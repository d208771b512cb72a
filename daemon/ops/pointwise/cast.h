// Cast: conversion to f32, bf16 or fp16, rounded to nearest, ties to even. Gradient: dy cast to the
// type of x. On the CPU only f32 to bf16.
#pragma once

#include "daemon/autograd/function.h"
#include "daemon/ops/function_row.h"

namespace gaccd {

class Cast : public Function {
 public:
  explicit Cast(DType to) : to_(to) {}

  [[nodiscard]] std::string_view name() const override { return "cast"; }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override;
  Status Gradient(GradientScope& scope) const override;

 private:
  DType to_;
};

CpuMake MakeCastCpu;
CudaMake MakeCastCuda;
inline constexpr FunctionRow kCastRows[] = {
    {"cast", MakesBf16(MakeCastCpu), MakeCastCuda},
};

}  // namespace gaccd
