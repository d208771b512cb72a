// Pooling of images on the GPU against loops over the same values: ties, NaNs and infinities,
// channels that are whole vectors and not, memory that is not aligned to them.
#include <cmath>
#include <limits>

#include "collectives/base/strings.h"
#include "daemon/ops/image/divisor.h"
#include "daemon/ops/image/pool2d.h"
#include "tests/support/gpu_bench.h"
#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

using Pool2dCuda = MakerTest;
using Pixels = std::vector<std::int32_t>;

struct PoolImages {
  DType dtype;
  Shape shape;
  std::size_t shift;  // see GpuArray
  PoolWindows windows;

  [[nodiscard]] Shape pooled() const {
    return {shape[0], windows.rows.out, windows.columns.out, shape[3]};
  }
  [[nodiscard]] std::string Name() const {
    return StrCat(gaccd::Name(dtype), " ", ToString(shape), " to ", ToString(pooled()), " shift ",
                  shift);
  }
  // visit(place in y, place in x, window row, window column, pixel) for all values of all windows.
  template <typename Visit>
  void ForValues(const Visit& visit) const {
    const auto& [rows, columns] = windows;
    std::size_t y = 0;
    for (std::int64_t n = 0; n < shape[0]; ++n) {
      for (std::int64_t p = 0; p < rows.out; ++p) {
        for (std::int64_t q = 0; q < columns.out; ++q) {
          for (std::int64_t c = 0; c < shape[3]; ++c, ++y) {
            for (std::int64_t h = rows.Begin(p); h < rows.End(p); h += rows.dilation) {
              for (std::int64_t w = columns.Begin(q); w < columns.End(q); w += columns.dilation) {
                const std::int64_t pixel = h * columns.in + w;
                const std::int64_t x = (n * rows.in * columns.in + pixel) * shape[3] + c;
                visit(y, static_cast<std::size_t>(x), p, q, static_cast<std::int32_t>(pixel));
              }
            }
          }
        }
      }
    }
  }
};

std::size_t SizeOfAll(const Shape& shape) { return static_cast<std::size_t>(Elements(shape)); }

// Equal bits, but for the bits of a NaN.
void ExpectSameImages(const std::vector<float>& found, const std::vector<float>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (std::isnan(found[i]) && std::isnan(expected[i])) continue;
    ASSERT_EQ(found[i], expected[i]) << i;
  }
}

// Few different values, so that maxima are equal, and some that are not finite.
std::vector<float> MixedValues(std::size_t count) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::vector<float> values;
  for (const float value : RandomValues(3, count, 8)) {
    const float whole = std::round(value);
    if (whole == 7) {
      values.push_back(std::numeric_limits<float>::quiet_NaN());
    } else {
      values.push_back(whole == 8 ? kInfinity : whole < 0 ? -kInfinity : whole);
    }
  }
  return values;
}

struct Maxima {
  std::vector<float> y;
  Pixels pixels;
};

Maxima FindMaxima(const PoolImages& images, const std::vector<float>& x) {
  const std::size_t size = SizeOfAll(images.pooled());
  Maxima maxima{std::vector<float>(size), Pixels(size, -1)};
  images.ForValues([&](std::size_t y, std::size_t at, auto, auto, std::int32_t pixel) {
    if (maxima.pixels[y] >= 0 && !(x[at] > maxima.y[y]) && !std::isnan(x[at])) return;
    maxima.y[y] = x[at];
    maxima.pixels[y] = pixel;
  });
  return maxima;
}

const std::int64_t kChannels[] = {1, 6, 8, 20, 72};

TEST_F(Pool2dCuda, Maxima) {
  const MaxPool2dOptions all[] = {
      {.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}},
      {.kernel = {2, 3}, .stride = {3, 1}, .padding = {1, 1}, .dilation = {3, 2}}};
  for (const MaxPool2dOptions& options : all) {
    const MaxPool2d function(options);
    for (const DType dtype : kFloatTypes) {
      for (const std::int64_t channels : kChannels) {
        const Shape shape{3, 7, 6, channels};
        const PoolImages images{dtype, shape, channels == 20 ? 1U : 0U, function.windows(shape)};
        SCOPED_TRACE(images.Name());
        const ValueSpec of_x{shape, dtype};
        const ValueSpec of_y{images.pooled(), dtype};
        const ValueSpec of_pixels{images.pooled(), DType::kI32};
        const std::size_t size = SizeOfAll(images.pooled());
        const std::vector<float> values = Stored(dtype, MixedValues(SizeOfAll(shape)));
        const GpuFloats x(dtype, values, images.shift);
        const GpuFloats y(dtype, std::vector<float>(size), images.shift);
        const GpuArray<std::int32_t> pixels(Pixels(size), images.shift);
        ASSERT_OK(
            RunNode(MakeMaxPool2dCuda, function, {{of_x, x.data()}}, {y.data(), pixels.data()}));
        const Maxima expected = FindMaxima(images, values);
        ExpectSameImages(y.Values(), expected.y);
        EXPECT_EQ(pixels.Values(), expected.pixels);

        const std::vector<float> gradients = Stored(dtype, RandomValues(5, size, 2));
        const GpuFloats dy(dtype, gradients, images.shift);
        const GpuFloats dx(dtype, std::vector<float>(values.size(), 9), images.shift);
        ASSERT_OK(RunNode(MakeMaxPool2dGradientCuda, MaxPool2dGradient(images.windows),
                          {{of_y, dy.data()}, {of_pixels, pixels.data()}}, {dx.data()}));
        std::vector<float> sums(values.size());
        images.ForValues([&](std::size_t i, std::size_t at, auto, auto, std::int32_t pixel) {
          if (expected.pixels[i] == pixel) sums[at] += gradients[i];
        });
        ExpectSameImages(dx.Values(), Stored(dtype, sums));
      }
    }
  }
}

// Sums in the order of the windows, and of the values of a window.
TEST_F(Pool2dCuda, Averages) {
  const auto check = [this](CudaMaker make, const auto& function) {
    for (const DType dtype : kFloatTypes) {
      for (const std::int64_t channels : kChannels) {
        const Shape shape{3, 7, 6, channels};
        const PoolImages images{dtype, shape, channels == 20 ? 1U : 0U, function.windows(shape)};
        SCOPED_TRACE(images.Name());
        const std::size_t size = SizeOfAll(images.pooled());
        const std::vector<float> values = Stored(dtype, RandomValues(3, SizeOfAll(shape), 2));
        const GpuFloats x(dtype, values, images.shift);
        const GpuFloats y(dtype, std::vector<float>(size, 9), images.shift);
        ASSERT_OK(RunNode(make, function, {{{shape, dtype}, x.data()}}, {y.data()}));
        const std::vector<float> gradients = Stored(dtype, RandomValues(5, size, 2));
        const GpuFloats dy(dtype, gradients, images.shift);
        const GpuFloats dx(dtype, std::vector<float>(values.size(), 9), images.shift);
        ASSERT_OK(RunNode(MakeAvgPool2dGradientCuda, AvgPool2dGradient(images.windows),
                          {{{images.pooled(), dtype}, dy.data()}}, {dx.data()}));
        std::vector<float> sums(size);
        std::vector<float> counts(size);
        std::vector<float> of_x(values.size());
        images.ForValues([&](std::size_t i, std::size_t at, std::int64_t p, std::int64_t q, auto) {
          counts[i] =
              static_cast<float>(images.windows.rows.Count(p) * images.windows.columns.Count(q));
          sums[i] += values[at];
          of_x[at] += gradients[i] / counts[i];
        });
        for (std::size_t i = 0; i < size; ++i) sums[i] /= counts[i];
        ExpectSameImages(y.Values(), Stored(dtype, sums));
        ExpectSameImages(dx.Values(), Stored(dtype, of_x));
      }
    }
  };
  for (const bool pad : {false, true}) {
    check(MakeAvgPool2dCuda,
          AvgPool2d(
              {.kernel = {3, 2}, .stride = {2, 1}, .padding = {1, 1}, .count_include_pad = pad}));
  }
  for (const ImagePair output : {ImagePair{1, 1}, ImagePair{3, 4}, ImagePair{9, 6}}) {
    check(MakeAdaptiveAvgPool2dCuda, AdaptiveAvgPool2d(output));
  }
}

TEST_F(Pool2dCuda, RefusesImagesBeyond32Bits) {
  const ValueSpec x{{1, 1 << 15, 1 << 15, 2}, DType::kBF16};
  EXPECT_THAT(RunNode(MakeAdaptiveAvgPool2dCuda, AdaptiveAvgPool2d({1, 1}), {{x, nullptr}}, {}),
              IsError(ErrorKind::kConfig, "images of at most 1073741824 values"));
}

TEST(DivisorTest, EqualsIntegerDivision) {
  constexpr std::int32_t kLargest = std::numeric_limits<std::int32_t>::max();
  std::vector<std::int32_t> values = {1, 2, 3, 5, 7, 56, 112, 641, 65535, 65536, 65537, 1000000007};
  for (int bits = 20; bits < 31; ++bits) {
    for (const int more : {-1, 0, 1}) values.push_back((1 << bits) + more);
  }
  values.push_back(kLargest);
  for (const std::int32_t value : values) {
    const Divisor divisor(value);
    EXPECT_EQ(static_cast<std::int32_t>(divisor), value);
    for (const std::int32_t other : values) {
      for (const std::int64_t n :
           {std::int64_t{other} - 1, std::int64_t{other},
            std::int64_t{kLargest} / value * value - 1, std::int64_t{kLargest} / value * value}) {
        const auto dividend = static_cast<std::int32_t>(n);
        EXPECT_EQ(dividend / divisor, dividend / value) << dividend << " / " << value;
      }
    }
  }
}

}  // namespace
}  // namespace gaccd
