#include "daemon/data/images/image_ops.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <numeric>
#include <utility>
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

Image CopyPart(const Image& image, std::int64_t top, std::int64_t left, const Box& size) {
  Image part{size.height, size.width, image.channels, {}};
  part.pixels.reserve(static_cast<std::size_t>(size.height * size.width * image.channels));
  for (std::int64_t y = top; y < top + size.height; ++y) {
    const auto row = image.pixels.begin() + (y * image.width + left) * image.channels;
    part.pixels.insert(part.pixels.end(), row, row + size.width * image.channels);
  }
  return part;
}

}  // namespace

Image ResizeImage(const Image& image, const Box& from, std::int64_t height, std::int64_t width,
                  const Box& window) {
  if (from.height == height && from.width == width) {
    return CopyPart(image, from.top + window.top, from.left + window.left, window);
  }
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

namespace {

std::uint8_t ToByte(float value) {
  return static_cast<std::uint8_t>(std::clamp(value, 0.0F, 255.0F));
}

// from + factor * (value - from), clamped to a byte.
std::uint8_t Blend(std::uint8_t from, std::uint8_t value, float factor) {
  const auto base = static_cast<float>(from);
  return ToByte(base + factor * (static_cast<float>(value) - base));
}

// BT.601, as in decode_image.cc.
std::uint8_t Luma(const std::uint8_t* rgb) {
  const std::uint32_t sum = rgb[0] * 19595U + rgb[1] * 38470U + rgb[2] * 7471U + 0x8000U;
  return static_cast<std::uint8_t>(sum >> 16);
}

// Hue, saturation, value.
using Hsv = std::array<std::uint8_t, 3>;

// Mixes float and double as PIL does, for equal results.
Hsv ToHsv(const std::uint8_t* rgb) {
  const std::uint8_t high = std::max({rgb[0], rgb[1], rgb[2]});
  const std::uint8_t low = std::min({rgb[0], rgb[1], rgb[2]});
  if (high == low) return {0, 0, high};
  const auto range = static_cast<float>(high - low);
  const float saturation = range / static_cast<float>(high);
  const auto below = [&](int c) { return static_cast<float>(high - rgb[c]) / range; };
  float sector = 0;  // of 6
  if (rgb[0] == high) {
    sector = below(2) - below(1);
  } else if (rgb[1] == high) {
    sector = static_cast<float>(2.0 + below(0) - below(2));
  } else {
    sector = static_cast<float>(4.0 + below(1) - below(0));
  }
  const auto hue = static_cast<float>(std::fmod(sector / 6.0 + 1.0, 1.0));
  return {static_cast<std::uint8_t>(static_cast<int>(hue * 255.0)),
          static_cast<std::uint8_t>(static_cast<int>(saturation * 255.0)), high};
}

void ToRgb(const Hsv& hsv, std::uint8_t* rgb) {
  const std::uint8_t v = hsv[2];
  if (hsv[1] == 0) {
    std::fill_n(rgb, 3, v);
    return;
  }
  const double sector = hsv[0] * 6.0 / 255.0;
  const double sector_floor = std::floor(sector);
  const auto part = static_cast<float>(sector - sector_floor);
  const auto saturation = static_cast<float>(hsv[1] / 255.0);
  const auto value = [v](double share) {
    return static_cast<std::uint8_t>(std::clamp(std::round(v * share), 0.0, 255.0));
  };
  const std::uint8_t p = value(1.0 - saturation);
  const std::uint8_t q = value(1.0 - saturation * part);
  const std::uint8_t t = value(1.0 - saturation * (1.0 - part));
  const std::array<std::array<std::uint8_t, 3>, 6> sectors{
      {{v, t, p}, {q, v, p}, {p, v, t}, {p, q, v}, {t, p, v}, {v, p, q}}};
  std::ranges::copy(sectors[static_cast<std::size_t>(sector_floor) % 6], rgb);
}

using Table = std::array<std::uint8_t, 256>;

template <typename Of>
Table MakeTable(const Of& of) {
  Table table{};
  for (std::size_t i = 0; i < table.size(); ++i) table[i] = of(static_cast<int>(i));
  return table;
}

// Maps the values of channel c.
void ApplyTable(const Table& table, std::size_t c, Image& image) {
  const auto channels = static_cast<std::size_t>(image.channels);
  for (std::size_t i = c; i < image.pixels.size(); i += channels) {
    image.pixels[i] = table[image.pixels[i]];
  }
}

// Number of pixels by value.
using Histogram = std::array<std::int64_t, 256>;
Histogram MakeHistogram(const Image& image, std::size_t c) {
  Histogram counts{};
  const auto channels = static_cast<std::size_t>(image.channels);
  for (std::size_t i = c; i < image.pixels.size(); i += channels) ++counts[image.pixels[i]];
  return counts;
}

// The smallest and the largest value that occur.
std::pair<int, int> ValueRange(const Histogram& counts) {
  const auto occurs = [](std::int64_t count) { return count > 0; };
  const auto first = std::ranges::find_if(counts, occurs);
  const auto last = std::find_if(counts.rbegin(), counts.rend(), occurs);
  return {static_cast<int>(first - counts.begin()), static_cast<int>(counts.rend() - last) - 1};
}

}  // namespace

void AdjustBrightness(Image& image, double factor) {
  for (std::uint8_t& value : image.pixels) value = Blend(0, value, static_cast<float>(factor));
}

void AdjustContrast(Image& image, double factor) {
  const auto channels = static_cast<std::size_t>(image.channels);
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < image.pixels.size(); i += channels) {
    sum += channels == 1 ? image.pixels[i] : Luma(&image.pixels[i]);
  }
  const auto count = static_cast<double>(image.pixels.size() / channels);
  const auto mean = static_cast<std::uint8_t>(static_cast<double>(sum) / count + 0.5);
  for (std::uint8_t& value : image.pixels) value = Blend(mean, value, static_cast<float>(factor));
}

void AdjustSaturation(Image& image, double factor) {
  if (image.channels == 1) return;
  for (std::size_t i = 0; i < image.pixels.size(); i += 3) {
    const std::uint8_t grey = Luma(&image.pixels[i]);
    for (std::size_t c = i; c < i + 3; ++c) {
      image.pixels[c] = Blend(grey, image.pixels[c], static_cast<float>(factor));
    }
  }
}

void AdjustHue(Image& image, double shift) {
  if (image.channels == 1) return;
  // Hues are modulo 256.
  const auto add = static_cast<std::uint8_t>(static_cast<std::int32_t>(shift * 255));
  for (std::size_t i = 0; i < image.pixels.size(); i += 3) {
    Hsv hsv = ToHsv(&image.pixels[i]);
    hsv[0] = static_cast<std::uint8_t>(hsv[0] + add);
    ToRgb(hsv, &image.pixels[i]);
  }
}

void AdjustSharpness(Image& image, double factor) {
  if (image.height < 3 || image.width < 3) return;
  const auto channels = static_cast<std::size_t>(image.channels);
  const auto row = static_cast<std::size_t>(image.width) * channels;
  std::vector<std::uint8_t> smooth = image.pixels;
  for (std::size_t i = row; i + row < smooth.size(); ++i) {
    const std::size_t x = i % row;
    if (x < channels || x + channels >= row) continue;
    std::uint32_t sum = 4U * image.pixels[i];
    for (const std::size_t at : {i - row, i, i + row}) {
      sum += image.pixels[at - channels] + image.pixels[at] + image.pixels[at + channels];
    }
    smooth[i] = static_cast<std::uint8_t>((2 * sum + 13) / 26);  // sum / 13, rounded
  }
  for (std::size_t i = 0; i < smooth.size(); ++i) {
    image.pixels[i] = Blend(smooth[i], image.pixels[i], static_cast<float>(factor));
  }
}

void Posterize(Image& image, int bits) {
  const auto mask = static_cast<std::uint8_t>(0xff << (8 - bits));
  for (std::uint8_t& value : image.pixels) value &= mask;
}

void Solarize(Image& image, double threshold) {
  for (std::uint8_t& value : image.pixels) {
    if (value >= threshold) value = static_cast<std::uint8_t>(255 - value);
  }
}

void AutoContrast(Image& image) {
  for (std::size_t c = 0; c < static_cast<std::size_t>(image.channels); ++c) {
    const auto [low, high] = ValueRange(MakeHistogram(image, c));
    if (high <= low) continue;
    const double scale = 255.0 / (high - low);
    const double offset = -low * scale;
    ApplyTable(MakeTable([&](int value) {
                 return static_cast<std::uint8_t>(std::clamp(value * scale + offset, 0.0, 255.0));
               }),
               c, image);
  }
}

// A value v becomes (pixels below v + step / 2) / step, where step is 1 / 255 of the pixels without
// those of the largest value.
void Equalize(Image& image) {
  for (std::size_t c = 0; c < static_cast<std::size_t>(image.channels); ++c) {
    const Histogram counts = MakeHistogram(image, c);
    const auto last = static_cast<std::size_t>(ValueRange(counts).second);
    const std::int64_t all = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
    const std::int64_t step = (all - counts[last]) / 255;
    if (step == 0) continue;
    std::int64_t below = step / 2;
    ApplyTable(MakeTable([&](int value) {
                 const std::int64_t share = below / step;
                 below += counts[static_cast<std::size_t>(value)];
                 return static_cast<std::uint8_t>(std::min<std::int64_t>(share, 255));
               }),
               c, image);
  }
}

}  // namespace gaccd
