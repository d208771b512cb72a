// Convolution by a library: one prepared operation of the function Conv2d (formulas:
// daemon/ops/image/conv2d.h), in bf16 or fp16 with sums in f32. cuDNN is the library
// (cudnn_plan.h); tests put another one there.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "collectives/base/dtype.h"
#include "collectives/base/result.h"
#include "daemon/device/cuda/library_plan.h"

namespace gaccd {

// How a warning begins that gives the reason why the library does not compute a convolution. By how
// much is not measured: with gaccd's own a ResNet-50 took 4 times torch.compile's time on an H100.
inline constexpr std::string_view kOwnConvolution =
    "convolution by gaccd's own kernels, which are slower: ";

struct ConvSize {
  std::int64_t images = 0, in = 0, out = 0, groups = 1;  // N, C, O
  using Pair = std::array<std::int64_t, 2>;              // of height and of width
  Pair image{}, result{}, kernel{}, stride{1, 1}, padding{}, dilation{1, 1};

  [[nodiscard]] std::int64_t results() const { return images * result[0] * result[1]; }
  [[nodiscard]] std::int64_t in_of_group() const { return in / groups; }
  [[nodiscard]] std::int64_t area() const { return kernel[0] * kernel[1]; }
  [[nodiscard]] std::int64_t columns() const { return in_of_group() * area(); }
  [[nodiscard]] std::int64_t image_elements() const { return images * image[0] * image[1] * in; }
  // The columns of x are x.
  [[nodiscard]] bool is_product() const {
    return area() == 1 && stride == Pair{1, 1} && padding == Pair{0, 0};
  }
  bool operator==(const ConvSize&) const = default;
};

// What is read, and what is written. Images lie [N, H, W, C], weights [O, KH, KW, C / groups].
enum class ConvPass {
  kForward,        // x, weight -> y
  kInputGradient,  // dy, weight -> dx
  // dy, x -> dweight in f32, with channels in multiples of kChannelsTogether: cuDNN takes few
  // others, and no depthwise ones on a Hopper GPU.
  kWeightGradient,
};
inline constexpr std::int64_t kChannelsTogether = 8;
// An algorithm that wants more is not taken.
inline constexpr std::int64_t kMaxConvWorkspace = std::int64_t{1} << 30;

struct ConvSpec {
  DType dtype = DType::kBF16;
  ConvPass pass = ConvPass::kForward;
  bool deterministic = true;  // the same bits at every run
  ConvSize size;

  [[nodiscard]] bool operator==(const ConvSpec&) const = default;
};

// "gradient of the weight of a convolution of 8 images of 56 x 56, 64 -> 256 channels, kernel 1 x
// 1"
[[nodiscard]] std::string ToText(const ConvSpec& spec);

// kInternal, naming spec and rule, when no convolution may be asked for like this.
Status Check(const ConvSpec& spec);

// Memory of the GPU, at multiples of 16 bytes.
struct ConvPointers {
  const void* first = nullptr;   // x, dy or dy
  const void* second = nullptr;  // weight, weight or x
  void* out = nullptr;
};

using ConvPlan = LibraryPlan<ConvPointers>;

}  // namespace gaccd
