// Convolution by a library: one prepared operation of the function Conv2d (formulas:
// daemon/ops/image/conv2d.h), in bf16 or fp16 with f32 sums. The library is cuDNN (cudnn_plan.h);
// tests replace it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "collectives/base/dtype.h"
#include "collectives/base/result.h"
#include "daemon/device/cuda/library_plan.h"

namespace gaccd {

// Start of the warning that the library does not support a convolution, followed by the reason. The
// difference in speed is not measured: with gaccd's own kernels a ResNet-50 took 4 times the time
// of torch.compile on an H100.
inline constexpr std::string_view kOwnConvolution =
    "convolution by gaccd's own kernels, which are slower: ";

struct ConvSize {
  std::int64_t images = 0, in = 0, out = 0, groups = 1;  // N, C, O
  using Pair = std::array<std::int64_t, 2>;              // height and width
  Pair image{}, result{}, kernel{}, stride{1, 1}, padding{}, dilation{1, 1};

  [[nodiscard]] std::int64_t results() const { return images * result[0] * result[1]; }
  [[nodiscard]] std::int64_t in_of_group() const { return in / groups; }
  [[nodiscard]] std::int64_t area() const { return kernel[0] * kernel[1]; }
  [[nodiscard]] std::int64_t columns() const { return in_of_group() * area(); }
  [[nodiscard]] std::int64_t image_elements() const { return images * image[0] * image[1] * in; }
  // Whether the columns of x are x itself.
  [[nodiscard]] bool is_product() const {
    return area() == 1 && stride == Pair{1, 1} && padding == Pair{0, 0};
  }
  bool operator==(const ConvSize&) const = default;
};

// Operands and result. Layouts: images [N, H, W, C], weights [O, KH, KW, C / groups].
enum class ConvPass {
  kForward,        // x, weight -> y
  kInputGradient,  // dy, weight -> dx
  // dy, x -> dweight in f32. Channels in multiples of kChannelsTogether: cuDNN supports few others,
  // and no depthwise ones on Hopper GPUs.
  kWeightGradient,
};
inline constexpr std::int64_t kChannelsTogether = 8;
// Algorithms that need more are not used.
inline constexpr std::int64_t kMaxConvWorkspace = std::int64_t{1} << 30;

struct ConvSpec {
  DType dtype = DType::kBF16;
  ConvPass pass = ConvPass::kForward;
  bool deterministic = true;  // bit-identical runs
  ConvSize size;

  [[nodiscard]] bool operator==(const ConvSpec&) const = default;
};

// "gradient of the weight of a convolution of 8 images of 56 x 56, 64 -> 256 channels, kernel 1 x
// 1"
[[nodiscard]] std::string ToText(const ConvSpec& spec);

// kInternal, with spec and rule, if the spec is invalid.
Status Check(const ConvSpec& spec);

// GPU memory, aligned to 16 bytes.
struct ConvPointers {
  const void* first = nullptr;   // x, dy or dy
  const void* second = nullptr;  // weight, weight or x
  void* out = nullptr;
};

using ConvPlan = LibraryPlan<ConvPointers>;

}  // namespace gaccd
