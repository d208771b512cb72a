// Sizes of convolutions on the GPU and of their im2col matrices: for the makers of the kernels and,
// also in builds without CUDA, for planning the memory of a graph.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "daemon/autograd/graph.h"
#include "daemon/device/cuda/dnn_library.h"
#include "daemon/ops/image/conv2d.h"

namespace gaccd {

[[nodiscard]] inline ConvSize MakeConvSize(const ValueSpec& x, const ValueSpec& y,
                                           const Shape& weight, const Conv2dOptions& options) {
  return {.images = x.shape[0],
          .in = x.shape[3],
          .out = y.shape[3],
          .groups = options.groups,
          .image = {x.shape[1], x.shape[2]},
          .result = {y.shape[1], y.shape[2]},
          .kernel = KernelSize(weight),
          .stride = options.stride,
          .padding = options.padding,
          .dilation = options.dilation};
}

// Bytes of the im2col matrix of a convolution with one group; 0 if x itself is that matrix.
[[nodiscard]] inline std::size_t ConvColumnBytes(const ConvSize& size, DType dtype) {
  if (size.is_product()) return 0;
  return static_cast<std::size_t>(size.results() * size.columns()) * SizeOf(dtype);
}

// The largest ConvColumnBytes() of the f32 convolutions of a graph. The scratch of 16-bit ones is
// chosen by cuDNN and not included.
[[nodiscard]] inline std::int64_t MaxConvColumnBytes(const Graph& graph) {
  std::int64_t most = 0;
  for (const Node& node : graph.nodes()) {
    const auto spec = [&](ValueId id) -> const ValueSpec& { return graph.value(id).spec; };
    const auto count = [&](ValueId x, ValueId y, ValueId weight, const Conv2dOptions& options) {
      if (options.groups > 1 || spec(x).dtype != DType::kF32) return;
      const ConvSize size = MakeConvSize(spec(x), spec(y), spec(weight).shape, options);
      most = std::max(most, static_cast<std::int64_t>(ConvColumnBytes(size, DType::kF32)));
    };
    const Function* const function = node.function.get();
    const auto& in = node.inputs;
    const auto& out = node.outputs;
    if (const auto* forward = dynamic_cast<const Conv2d*>(function)) {
      count(in[0], out[0], in[1], forward->options());
    } else if (const auto* by_x = dynamic_cast<const Conv2dInputGradient*>(function)) {
      count(out[0], in[0], in[1], by_x->options());
    } else if (const auto* by_weight = dynamic_cast<const Conv2dWeightGradient*>(function)) {
      count(in[1], in[0], out[0], by_weight->options());
    }
  }
  return most;
}

}  // namespace gaccd
