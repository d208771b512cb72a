// Convolutions with kernels of 3 x 3 and their gradients, on the CPU in f32, by the minimal
// algorithm F(2x2, 3x3): 4 results of a channel take 16 products instead of 36.
// Images, weights and kinds are those of Convolution, and so are Bind() and Run(). A ResNet-18 with
// micro-batches of 1, 4, 8 and 32 images of 28 x 28 trains 1.03, 1.18, 1.29 and 1.46 times as fast
// with it as with oneDNN 2.6 alone, on a Zen 5 core.
#pragma once

#include <array>
#include <cstdint>
#include <dnnl.hpp>
#include <vector>

#include "collectives/base/result.h"
#include "daemon/device/cpu/convolution.h"

namespace gaccd {

// Whether the classes below support this convolution and are expected to be faster than
// Convolution.
[[nodiscard]] bool WinogradSuits(ConvolutionKind kind, const ConvolutionSpec& spec);

// The tiles of the images that are read: tile (i, j) of an image has the 2 x 2 results from (2 i, 2
// j) on, and reads 4 x 4 pixels. Tiles are computed in blocks.
class WinogradTiles {
 public:
  using Pair = ConvolutionSpec::Pair;

  WinogradTiles(std::int64_t images, Pair read, Pair results, Pair padding);

  [[nodiscard]] std::int64_t count() const { return images_ * rows_ * columns_; }
  [[nodiscard]] std::int64_t block() const { return block_; }

  // The pixels that a tile reads, of `channels` each; pixels outside the image are `outside`.
  [[nodiscard]] std::array<const float*, 16> Pixels(std::int64_t tile, const float* images,
                                                    std::int64_t channels,
                                                    const float* outside) const;
  // The results of a tile, likewise. T: float or const float.
  template <typename T>
  [[nodiscard]] std::array<T*, 4> Results(std::int64_t tile, T* results, std::int64_t channels,
                                          T* outside) const;

 private:
  struct Tile {
    std::int64_t image, i, j;
  };
  [[nodiscard]] Tile At(std::int64_t tile) const;

  std::int64_t images_;
  Pair read_, results_, padding_;
  std::int64_t rows_, columns_;  // of tiles per image
  std::int64_t block_;
};

// kForward, or kInputGradient: a convolution of dy with kernels rotated by 180 degrees.
class WinogradConvolution {
 public:
  // See Convolution. REQUIRES: WinogradSuits().
  static Result<WinogradConvolution> Prepare(CpuContext& context, ConvolutionKind kind,
                                             const ConvolutionSpec& spec, const float* parameter);

  [[nodiscard]] std::int64_t scratch_bytes() const;
  void Bind(const ConvolutionOperands& operands);
  Status Run(bool add);

 private:
  WinogradConvolution(const WinogradTiles& tiles, bool turned, std::int64_t in, std::int64_t out);
  Status Make(CpuContext& context, const float* parameter);

  WinogradTiles tiles_;
  bool turned_;                        // kInputGradient
  std::int64_t in_, out_;              // channels of input and output
  std::vector<float> zeros_, unused_;  // replace pixels and results outside the images

  dnnl::stream stream_;
  PackedWeight kernels_;  // 9 planes [in, out]
  dnnl::matmul product_;  // 16 of [block, in] x [in, out]
  dnnl::memory pixels_memory_, kernels_memory_, sums_memory_, product_scratch_;
  std::vector<dnnl_exec_arg_t> args_;
  std::int64_t product_scratch_bytes_ = 0;

  const float* read_ = nullptr;
  const float* bias_ = nullptr;
  float* written_ = nullptr;
  float* kernel_planes_ = nullptr;  // [16, in, out]
  float* pixel_planes_ = nullptr;   // [16, block, in]
  float* sums_ = nullptr;           // [16, block, out]
};

class WinogradWeightGradient {
 public:
  // See Convolution. REQUIRES: WinogradSuits().
  static Result<WinogradWeightGradient> Prepare(CpuContext& context, const ConvolutionSpec& spec);

  [[nodiscard]] std::int64_t scratch_bytes() const;
  void Bind(const ConvolutionOperands& operands);
  Status Run(bool add);

 private:
  WinogradWeightGradient(const WinogradTiles& tiles, std::int64_t in, std::int64_t out);

  WinogradTiles tiles_;
  std::int64_t in_, out_;
  std::vector<float> zeros_;

  dnnl::stream stream_;
  dnnl::memory planes_memory_, gradient_memory_;
  dnnl::reorder overwrite_, add_;  // from 9 planes [in, out]
  std::vector<dnnl_exec_arg_t> args_;

  const float* x_ = nullptr;
  const float* dy_ = nullptr;
  float* planes_ = nullptr;           // [16, in, out]
  float* pixel_planes_ = nullptr;     // [16, block, in]
  float* gradient_planes_ = nullptr;  // [16, block, out]
};

// The transformations of the minimal algorithm F(2x2, 3x3): Lavin and Gray, "Fast Algorithms for
// Convolutional Neural Networks", 2016. For a tile d of 4 x 4 pixels, y of 2 x 2 results, a kernel
// g of 3 x 3:
//   y  = A^T [sum over channels (G g G^T) (B^T d B)] A
//   dg = G^T [sum over tiles (B^T d B) (A dy A^T)] G
//
//   B^T = 1  0 -1  0    G = 1    0   0     A^T = 1  1  1  0
//         0  1  1  0        1/2  1/2 1/2         0  1 -1 -1
//         0 -1  1  0        1/2 -1/2 1/2
//         0  1  0 -1        0    0   1
//
// Every function transforms all channels, or weights; their number is a multiple of kWinogradLanes.
// A transformed tile is 16 planes, `step` values apart.
inline constexpr std::int64_t kWinogradLanes = 16;
inline constexpr std::int64_t kWinogradPlanes = 16;

// B^T d B. pixels: the channels of each pixel, row by row.
void TransformPixels(const std::array<const float*, 16>& pixels, std::int64_t channels,
                     float* planes, std::int64_t step);
// A^T m A + bias; bias null: none.
void TransformResults(const float* planes, std::int64_t step, std::int64_t channels,
                      const float* bias, const std::array<float*, 4>& results);
// A dy A^T.
void TransformResultGradients(const std::array<const float*, 4>& gradients, std::int64_t channels,
                              float* planes, std::int64_t step);

// G g G^T of `count` kernels. Each value of a kernel is in a separate plane: 9 planes become 16
// planes of `count` values. turned: rotates by 180 degrees first.
void TransformKernels(const float* kernels, std::int64_t count, bool turned, float* planes);
// G^T m G, in place: the first 9 of the 16 planes become the gradients.
void TransformKernelGradients(float* planes, std::int64_t count);

}  // namespace gaccd
