#include "daemon/data/mix_group.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <utility>

#include "daemon/data/random_stream.h"
#include "daemon/tensor/random.h"

namespace gaccd {
namespace {

// Differs from the layer numbers of dropout and from kMaskStream, which are smaller.
constexpr std::uint64_t kMixStream = std::uint64_t{1} << 34;

// Uniform in (0, 1].
double Positive(RandomStream& numbers) { return 1 - numbers.Uniform(0, 1); }

// The logarithm of a Gamma(shape, 1) variable: Marsaglia and Tsang, "A simple method for generating
// gamma variables", 2000. For shape < 1: Gamma(shape + 1, 1) times U^(1/shape).
double LogGamma(double shape, RandomStream& numbers) {
  const double d = (shape < 1 ? shape + 1 : shape) - 1.0 / 3;
  const double c = 1 / std::sqrt(9 * d);
  while (true) {
    const double x = numbers.Normal();
    const double log_u = std::log(Positive(numbers));
    const double root = 1 + c * x;
    const double v = root * root * root;
    if (v <= 0 || log_u >= x * x / 2 + d - d * v + d * std::log(v)) continue;
    const double value = std::log(d * v);
    return shape < 1 ? value + std::log(Positive(numbers)) / shape : value;
  }
}

double DrawBeta(double alpha, RandomStream& numbers) {
  const double a = LogGamma(alpha, numbers);
  const double b = LogGamma(alpha, numbers);
  return 1 / (1 + std::exp(b - a));
}

Box DrawBox(double lambda, std::int64_t height, std::int64_t width, RandomStream& numbers) {
  const std::int64_t x = numbers.Below(width);
  const std::int64_t y = numbers.Below(height);
  const double half = 0.5 * std::sqrt(1 - lambda);
  const auto half_of = [half](std::int64_t side) {
    return static_cast<std::int64_t>(half * static_cast<double>(side));
  };
  Box box{.top = std::max<std::int64_t>(y - half_of(height), 0),
          .left = std::max<std::int64_t>(x - half_of(width), 0)};
  box.height = std::min(y + half_of(height), height) - box.top;
  box.width = std::min(x + half_of(width), width) - box.left;
  return box;
}

// Sattolo's algorithm.
std::vector<std::int64_t> DrawCycle(std::int64_t samples, RandomStream& numbers) {
  std::vector<std::int64_t> places(static_cast<std::size_t>(samples));
  std::iota(places.begin(), places.end(), 0);
  for (std::int64_t i = samples - 1; i > 0; --i) {
    std::swap(places[static_cast<std::size_t>(i)],
              places[static_cast<std::size_t>(numbers.Below(i))]);
  }
  return places;
}

}  // namespace

std::uint64_t MixKey(std::uint64_t draw, std::int64_t group) {
  return StreamKey(StreamKey(draw, kMixStream), static_cast<std::uint64_t>(group));
}

GroupMix DrawGroupMix(const DataSpec& data, std::uint64_t key, std::int64_t samples,
                      std::int64_t height, std::int64_t width) {
  GroupMix mix{.lambda = 1, .box = std::nullopt, .partners = {0}};
  if (samples == 1) return mix;
  RandomStream numbers(key);
  const bool cuts = data.cutmix && (!data.mixup || numbers.Uniform(0, 1) < 0.5);
  double lambda = DrawBeta(cuts ? data.cutmix->alpha : data.mixup->alpha, numbers);
  if (cuts) {
    mix.box = DrawBox(lambda, height, width, numbers);
    lambda = 1 - static_cast<double>(mix.box->height * mix.box->width) /
                     static_cast<double>(height * width);
  }
  mix.lambda = static_cast<float>(std::nearbyint(lambda * 0x1p24) * 0x1p-24);
  mix.partners = DrawCycle(samples, numbers);
  return mix;
}

}  // namespace gaccd
