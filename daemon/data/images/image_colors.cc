#include "daemon/data/images/image_colors.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

namespace gaccd {
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
