#include "daemon/data/images/resize_image.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <vector>

#include "collectives/base/simd.h"

namespace gaccd {
namespace {

// Fractional bits of the fixed-point weights: 32 without 8 of the pixels and 2 of the sum.
constexpr int kBits = 32 - 8 - 2;
constexpr std::int32_t kHalf = 1 << (kBits - 1);

// The inputs and weights of each output along one dimension.
struct Taps {
  std::size_t stride = 0;            // stride of `weight`
  std::size_t used = 0;              // maximum of `count`
  std::vector<std::size_t> first;    // [outputs]
  std::vector<std::size_t> count;    // [outputs]
  std::vector<std::int32_t> weight;  // [outputs, stride]
};

// For the outputs [begin, begin + count) of `out`, from `in` inputs that begin at `offset`.
Taps MakeTaps(std::int64_t offset, std::int64_t in, std::int64_t out, std::int64_t begin,
              std::int64_t count) {
  const double scale = static_cast<double>(in) / static_cast<double>(out);
  const double support = std::max(scale, 1.0);  // half the width of the triangle
  const double inverse = 1 / support;
  Taps taps{.stride = static_cast<std::size_t>(std::ceil(support)) * 2 + 1};
  std::vector<double> weights(taps.stride);
  for (std::int64_t i = begin; i < begin + count; ++i) {
    const double center = (static_cast<double>(i) + 0.5) * scale;
    const auto first = std::max(static_cast<std::int64_t>(center - support + 0.5), std::int64_t{0});
    const auto end = std::min(static_cast<std::int64_t>(center + support + 0.5), in);
    double sum = 0;
    for (std::int64_t j = first; j < end; ++j) {
      const double distance = std::abs((static_cast<double>(j) - center + 0.5) * inverse);
      const double weight = distance < 1 ? 1 - distance : 0;
      weights[static_cast<std::size_t>(j - first)] = weight;
      sum += weight;
    }
    taps.first.push_back(static_cast<std::size_t>(offset + first));
    taps.count.push_back(static_cast<std::size_t>(end - first));
    taps.used = std::max(taps.used, taps.count.back());
    for (std::size_t j = 0; j < taps.stride; ++j) {
      const bool used = j < taps.count.back();
      taps.weight.push_back(used ? static_cast<std::int32_t>(0.5 + weights[j] / sum * (1 << kBits))
                                 : 0);
    }
  }
  return taps;
}

// The sum is not negative, and exceeds 255 only by rounding of the weights.
std::uint8_t ToByte(std::int32_t sum) {
  return static_cast<std::uint8_t>(std::min(sum >> kBits, 255));
}

void ResizeGreyRow(const std::uint8_t* from, const Taps& taps, std::uint8_t* to) {
  for (std::size_t x = 0; x < taps.first.size(); ++x) {
    const std::int32_t* weight = taps.weight.data() + x * taps.stride;
    const std::uint8_t* pixel = from + taps.first[x];
    std::int32_t sum = kHalf;
    for (std::size_t j = 0; j < taps.count[x]; ++j) sum += pixel[j] * weight[j];
    to[x] = ToByte(sum);
  }
}

// The three values of a pixel and an unused one.
using FourBytes __attribute__((vector_size(4))) = std::uint8_t;
using FourWords __attribute__((vector_size(16))) = std::uint32_t;
using FourSums __attribute__((vector_size(16))) = std::int32_t;

// Uses taps.used inputs for every output, some with weight 0, because branches of a fixed loop
// length are predicted. May read taps.used pixels and one byte past the row; writes one byte past
// `to`.
GACCD_SIMD_CLONES void ResizeRgbRow(const std::uint8_t* from, const Taps& taps, std::uint8_t* to) {
  const std::size_t pixels = taps.first.size();
  const std::size_t* first = taps.first.data();
  const std::int32_t* weight = taps.weight.data();
  for (std::size_t x = 0; x < pixels; ++x, to += 3, weight += taps.stride) {
    const std::uint8_t* pixel = from + first[x] * 3;
    FourSums sum = {kHalf, kHalf, kHalf, kHalf};
    for (std::size_t j = 0; j < taps.used; ++j, pixel += 3) {
      std::uint32_t word = 0;
      std::memcpy(&word, pixel, sizeof(word));
      const FourWords values =
          (FourWords{word, word, word, word} >> FourWords{0, 8, 16, 24}) & 255U;
      sum += FourSums(values) * weight[j];
    }
    sum >>= kBits;
    sum = sum > 255 ? FourSums{255, 255, 255, 255} : sum;
    const FourBytes bytes = __builtin_convertvector(sum, FourBytes);
    std::memcpy(to, &bytes, sizeof(bytes));
  }
}

// One output row from `count` input rows.
GACCD_SIMD_CLONES void ResizeColumns(const std::uint8_t* from, std::size_t row_bytes,
                                     const std::int32_t* weight, std::size_t count,
                                     std::int32_t* sums, std::uint8_t* to) {
  std::fill_n(sums, row_bytes, kHalf);
  for (std::size_t j = 0; j < count; ++j) {
    const std::uint8_t* row = from + j * row_bytes;
    for (std::size_t x = 0; x < row_bytes; ++x) sums[x] += row[x] * weight[j];
  }
  for (std::size_t x = 0; x < row_bytes; ++x) to[x] = ToByte(sums[x]);
}

}  // namespace

Image ResizeImage(const Image& image, const Box& from, std::int64_t height, std::int64_t width,
                  const Box& window) {
  const Taps across = MakeTaps(from.left, from.width, width, window.left, window.width);
  const Taps down = MakeTaps(from.top, from.height, height, window.top, window.height);
  const std::size_t first_row = down.first.front();
  const std::size_t rows = down.first.back() + down.count.back() - first_row;
  const auto channels = static_cast<std::size_t>(image.channels);
  const std::size_t in_bytes = static_cast<std::size_t>(image.width) * channels;
  const std::size_t out_bytes = static_cast<std::size_t>(window.width) * channels;
  std::vector<std::uint8_t> narrow(rows * out_bytes + 1);
  const auto resize_row = channels == 1 ? &ResizeGreyRow : &ResizeRgbRow;
  const std::size_t padding = across.used * channels + 1;
  std::vector<std::uint8_t> end(in_bytes + padding);  // padded copy of a row near the end
  for (std::size_t y = first_row; y < first_row + rows; ++y) {
    const std::uint8_t* row = image.pixels.data() + y * in_bytes;
    if ((y + 1) * in_bytes + padding > image.pixels.size()) {
      std::copy_n(row, in_bytes, end.data());
      row = end.data();
    }
    resize_row(row, across, narrow.data() + (y - first_row) * out_bytes);
  }
  Image out{window.height, window.width, image.channels, {}};
  out.pixels.resize(static_cast<std::size_t>(window.height) * out_bytes);
  std::vector<std::int32_t> sums(out_bytes);
  for (std::size_t y = 0; y < down.first.size(); ++y) {
    ResizeColumns(narrow.data() + (down.first[y] - first_row) * out_bytes, out_bytes,
                  down.weight.data() + y * down.stride, down.count[y], sums.data(),
                  out.pixels.data() + y * out_bytes);
  }
  return out;
}

}  // namespace gaccd
