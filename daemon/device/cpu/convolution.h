// Convolution: one prepared convolution of images on the CPU, or one of its gradients, by oneDNN.
// Layouts: images [N, H, W, C], weights [O, C / groups, KH, KW] (OH, OW: size of y):
//   kForward         y [N, OH, OW, O] = x * W (+ bias)
//   kInputGradient   dx [N, H, W, C] from dy and W
//   kWeightGradient  dW, or dW += , from dy and x
// f32. With bf16 the input images are bf16 and the weight is rounded to it; sums are f32. Prepared
// once, run many times; gaccd allocates no memory in a run.
#pragma once

#include <array>
#include <cstdint>
#include <dnnl.hpp>
#include <vector>

#include "collectives/base/result.h"
#include "daemon/device/cpu/cpu_context.h"
#include "daemon/device/cpu/packed_weights.h"

namespace gaccd {

enum class ConvolutionKind : std::uint8_t { kForward, kInputGradient, kWeightGradient };

// Pairs: height and width.
struct ConvolutionSpec {
  using Pair = std::array<std::int64_t, 2>;

  std::int64_t images = 0, in = 0, out = 0, groups = 1;  // N, C, O
  Pair image{}, result{}, kernel{};                      // H and W, OH and OW, KH and KW
  Pair stride{1, 1}, padding{0, 0}, dilation{1, 1};
  bool bias = false;  // kForward only
  bool bf16 = false;
};

// "convolution of 32 images [64, 28, 28], weight [128, 64, 3, 3]"
[[nodiscard]] std::string ToText(const ConvolutionSpec& spec);

// Operands that the kind of a convolution does not use are null.
struct ConvolutionOperands {
  const void* x = nullptr;  // or dx
  const void* y = nullptr;  // or dy
  const float* weight = nullptr;
  const float* bias = nullptr;
  float* weight_gradient = nullptr;
  void* scratch = nullptr;
};

// Parts of a scratch memory start at multiples of 64 bytes.
constexpr std::int64_t AlignedBytes(std::int64_t bytes) { return (bytes + 63) / 64 * 64; }

class Convolution {
 public:
  // parameter: the weight, f32, used through a packed copy (see PackedWeight); null if it is
  // computed, and for kWeightGradient.
  // `context` must outlive it. kInternal if oneDNN fails (bf16: also a CPU for which
  // DetectCpuBf16() is kNone). REQUIRES: not a kernel of 1 x 1 without padding and with a stride
  // above 1. For these, oneDNN gathers the input, for narrow weight gradients beyond its memory
  // (github.com/uxlfoundation/oneDNN/issues/6035): gather first.
  static Result<Convolution> Prepare(CpuContext& context, ConvolutionKind kind,
                                     const ConvolutionSpec& spec, const float* parameter);

  [[nodiscard]] std::int64_t scratch_bytes() const { return scratch_bytes_; }

  // Sets the operands that the kind uses; `scratch`: scratch_bytes(), 64-byte aligned. Cheap.
  void Bind(const ConvolutionOperands& operands);
  // add: kWeightGradient adds to dW. kInternal if oneDNN fails. REQUIRES: Bind().
  Status Run(bool add = false);

 private:
  struct Step {
    dnnl::primitive primitive;
    std::vector<dnnl_exec_arg_t> args;
  };

  Convolution() = default;
  void Make(CpuContext& context, ConvolutionKind kind, const ConvolutionSpec& spec,
            const float* parameter);
  template <typename PrimitiveDesc>
  void SetMain(const PrimitiveDesc& desc, const dnnl::engine& engine, dnnl::primitive primitive);
  Status Execute(const Step& step) const;

  dnnl::stream stream_;
  Step main_;
  Step overwrite_, add_;  // kWeightGradient: from oneDNN's layout to the plain one
  PackedWeight weight_;
  dnnl::memory x_, y_, gradient_, bias_, plain_gradient_, scratch_;
  std::int64_t gradient_bytes_ = 0;  // size of dW in oneDNN's layout, at the start of the scratch
  std::int64_t scratch_bytes_ = 0;
};

}  // namespace gaccd
