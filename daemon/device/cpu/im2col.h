// Convolutions of images in bf16, and their gradients, on the CPU as products of matrices. The
// pixels that a result reads become a row of `columns`, tap by tap (a tap: a position of the
// kernel), pixels outside the image as 0:
//   kForward         y  [rows, O]        = columns(x)  [rows, KH KW C] * W
//   kInputGradient   dx [rows, C]        = columns(dy) [rows, KH KW O] * W; with a stride > 1 a
//                                          tap between the values of dy reads 0
//   kWeightGradient  dW [O, KH KW C]     = dy^T [O, rows] * columns(x)
// Rows are computed in blocks that stay in the caches. Images, weights and kinds are those of
// Convolution, and so are Bind() and Run(). On one core with AMX, the fastest update of a ResNet-18
// with 32 images of 28 x 28 takes 256 ms this way, 333 ms with the convolutions of oneDNN 2.6. On a
// Zen 5 core weight gradients alone made it 8 % faster.
#pragma once

#include <array>
#include <cstdint>
#include <dnnl.hpp>
#include <vector>

#include "collectives/base/result.h"
#include "daemon/device/cpu/convolution.h"
#include "daemon/device/cpu/matmul.h"
#include "daemon/device/cpu/packed_weights.h"

namespace gaccd {

// Whether the classes below support this convolution and are expected to be faster than
// Convolution.
[[nodiscard]] bool Im2colSuits(ConvolutionKind kind, const ConvolutionSpec& spec);

// The pixels that a result reads, one for each tap of an axis; -1 outside of the image and, for
// kInputGradient, whose results are dx, between the values of dy.
class TapPixels {
 public:
  TapPixels(ConvolutionKind kind, const ConvolutionSpec& spec);

  // Sizes of the images that are read, and of the results.
  [[nodiscard]] const ConvolutionSpec::Pair& read() const { return read_; }
  [[nodiscard]] const ConvolutionSpec::Pair& results() const { return results_; }
  // Of result `at` along the axis.
  [[nodiscard]] const std::int64_t* At(std::size_t axis, std::int64_t at) const {
    return pixels_[axis].data() + at * kernel_[axis];
  }

 private:
  ConvolutionSpec::Pair read_, results_, kernel_;
  std::array<std::vector<std::int64_t>, 2> pixels_;
};

// Copies the pixels that results read.
class Im2col {
 public:
  Im2col(ConvolutionKind kind, const ConvolutionSpec& spec);

  // Results, and values read by each.
  [[nodiscard]] std::int64_t rows() const {
    return images_ * pixels_.results()[0] * pixels_.results()[1];
  }
  [[nodiscard]] std::int64_t columns() const { return kernel_[0] * kernel_[1] * channels_; }
  // images: bf16, [images, height, width, channels]. columns: [count, columns()].
  void Gather(const std::uint16_t* images, std::int64_t first_row, std::int64_t count,
              std::uint16_t* columns) const;

 private:
  void GatherRow(const std::uint16_t* image, std::int64_t p, std::int64_t q,
                 std::uint16_t* row) const;

  std::int64_t images_, channels_;
  ConvolutionSpec::Pair kernel_;
  TapPixels pixels_;
};

// kForward and kInputGradient.
class Im2colConvolution {
 public:
  // See Convolution. REQUIRES: Im2colSuits().
  static Result<Im2colConvolution> Prepare(CpuContext& context, ConvolutionKind kind,
                                           const ConvolutionSpec& spec, const float* parameter);

  [[nodiscard]] std::int64_t scratch_bytes() const;
  void Bind(const ConvolutionOperands& operands);
  Status Run(bool add);

 private:
  Im2colConvolution(ConvolutionKind kind, const ConvolutionSpec& spec);
  Status Make(CpuContext& context, const ConvolutionSpec& spec, const float* parameter);

  Im2col im2col_;
  bool is_gradient_;
  std::int64_t written_channels_;
  PackedWeight weight_;
  std::vector<Matmul> products_;  // of a block, and of the remaining rows

  const std::uint16_t* read_ = nullptr;
  const float* bias_ = nullptr;
  float* written_ = nullptr;
  std::byte* product_scratch_ = nullptr;
  std::uint16_t* columns_ = nullptr;
};

class Im2colWeightGradient {
 public:
  // See Convolution. REQUIRES: Im2colSuits().
  static Result<Im2colWeightGradient> Prepare(CpuContext& context, const ConvolutionSpec& spec);

  [[nodiscard]] std::int64_t scratch_bytes() const;
  void Bind(const ConvolutionOperands& operands);
  Status Run(bool add);

 private:
  explicit Im2colWeightGradient(const ConvolutionSpec& spec);

  Im2col im2col_;
  std::int64_t in_, out_;
  std::vector<Matmul> products_;  // of the first block, of further ones, of the remaining rows

  const std::uint16_t* x_ = nullptr;
  const std::uint16_t* dy_ = nullptr;
  float* gradient_ = nullptr;
  float* sums_ = nullptr;  // [O, KH KW C]
  std::byte* product_scratch_ = nullptr;
  std::uint16_t* columns_ = nullptr;
};

// Sums of a weight gradient, that of output channel o, tap t and input channel c at
// o * out_step + t * tap_step + c.
struct TapSums {
  std::int64_t out, in, taps, out_step, tap_step;
};
// Writes them as, or adds them to, a gradient [O, C, taps].
void WriteKernelGradients(const TapSums& size, const float* sums, bool add, float* gradient);

}  // namespace gaccd
