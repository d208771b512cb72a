// The weight gradient of a convolution in bf16 on the CPU, one product per tap (a position of the
// kernel):
//   dW [O, C] of tap t = dy_t^T x_t
// where dy_t are the rows of dy whose tap t reads a pixel inside the image, and x_t those pixels.
// Im2colWeightGradient computes all taps at once, but multiplies by 0 for the pixels outside: 31 %
// of its products for images of 4 x 4 and kernels of 3 x 3 with a padding of 1.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "collectives/base/result.h"
#include "daemon/device/cpu/convolution.h"
#include "daemon/device/cpu/cpu_context.h"
#include "daemon/device/cpu/matmul.h"

namespace gaccd {

// Whether the class below is expected to be faster than Im2colWeightGradient. REQUIRES:
// Im2colSuits() for the weight gradient.
[[nodiscard]] bool TapGradientSuits(const ConvolutionSpec& spec);

class TapWeightGradient {
 public:
  // See Convolution. REQUIRES: TapGradientSuits().
  static Result<TapWeightGradient> Prepare(CpuContext& context, const ConvolutionSpec& spec);

  [[nodiscard]] std::int64_t scratch_bytes() const;
  void Bind(const ConvolutionOperands& operands);
  Status Run(bool add);

 private:
  using Half = std::uint16_t;
  struct Pixels {
    std::int64_t x, dy;  // numbers in their images
  };

  explicit TapWeightGradient(const ConvolutionSpec& spec);
  Status RunTap(std::size_t tap, std::int64_t first, std::int64_t last);
  [[nodiscard]] std::int64_t BlockImages() const;
  [[nodiscard]] std::int64_t SumBytes() const;

  std::int64_t images_, in_, out_;
  std::int64_t x_pixels_, dy_pixels_;                         // per image
  std::vector<std::vector<Pixels>> taps_;                     // of an image
  std::map<std::pair<std::int64_t, bool>, Matmul> products_;  // by rows, and whether it adds
  std::int64_t product_scratch_bytes_ = 0;

  const Half* x_ = nullptr;
  const Half* dy_ = nullptr;
  float* gradient_ = nullptr;
  float* sums_ = nullptr;  // [taps, O, C]
  std::byte* product_scratch_ = nullptr;
  Half* x_rows_ = nullptr;
  Half* dy_rows_ = nullptr;
};

}  // namespace gaccd
