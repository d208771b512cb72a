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
#pragma once

#include <array>
#include <cstdint>

namespace gaccd {

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
