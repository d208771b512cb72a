// Conversion of images between [N, C, H, W], the order of PyTorch and of data, and channels last,
// [N, H, W, C], the order of the image functions, whose loops and library products then access rows
// of channels. Each function is the gradient of the other.
#pragma once

#include "daemon/autograd/function.h"
#include "daemon/ops/function_row.h"

namespace gaccd {

class ChannelsLast : public Function {
 public:
  [[nodiscard]] std::string_view name() const override { return "channels_last"; }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override;
  Status Gradient(GradientScope& scope) const override;
};

class ChannelsFirst : public Function {
 public:
  [[nodiscard]] std::string_view name() const override { return "channels_first"; }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override;
  Status Gradient(GradientScope& scope) const override;
};

CpuMake MakeChannelsLastCpu, MakeChannelsFirstCpu;
CudaMake MakeChannelsLastCuda, MakeChannelsFirstCuda;
inline constexpr FunctionRow kChannelsLastRows[] = {
    {"channels_last", MakeChannelsLastCpu, MakeChannelsLastCuda},
    {"channels_first", MakeChannelsFirstCpu, MakeChannelsFirstCuda},
};

}  // namespace gaccd
