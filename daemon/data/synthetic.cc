#include "daemon/data/synthetic.h"

#include <cmath>
#include <utility>

#include "collectives/base/strings.h"
#include "daemon/data/normalize.h"
#include "daemon/tensor/random.h"

namespace gaccd {
namespace {

constexpr std::int64_t kMaxWeights = std::int64_t{1} << 26;
constexpr std::uint64_t kWeightStream = 0x57;  // W's own stream, whatever the seed

// Standard normal number j of a stream. The probability is the middle of one of 2^53 equal parts of
// (0, 1), so it is never 0 or 1.
double Normal(std::uint64_t key, std::uint64_t j) {
  const auto part = static_cast<double>(StreamValue(key, j) >> 11);
  return NormalQuantile((part + 0.5) * 0x1p-53);
}

constexpr float kLargestNormal = 9;  // beyond all that Normal() gives: 53 bits reach 8.3

class SyntheticDataset final : public Dataset {
 public:
  SyntheticDataset(const SyntheticSource& source, Affine affine)
      : source_(source),
        affine_(affine),
        weights_(static_cast<std::size_t>(source.features * source.outputs)) {
    spec_.feature_shape = {source.features};
    spec_.target_width = source.outputs;
    const std::uint64_t key = StreamKey(kWeightStream, static_cast<std::uint64_t>(source.features));
    for (std::size_t i = 0; i < weights_.size(); ++i) {
      weights_[i] = static_cast<float>(Normal(key, i));
    }
  }

  [[nodiscard]] std::int64_t size() const override { return source_.samples; }
  [[nodiscard]] const SampleSpec& spec() const override { return spec_; }

  void Gather(std::span<const std::int64_t> indices, const BatchView& out) const override {
    const auto features = static_cast<std::size_t>(source_.features);
    const auto outputs = static_cast<std::size_t>(source_.outputs);
    for (std::size_t i = 0; i < indices.size(); ++i) {
      Make(indices[i], {out.features + i * features, features},
           {out.targets + i * outputs, outputs});
    }
  }

 private:
  void Make(std::int64_t index, std::span<float> x, std::span<float> y) const {
    const std::uint64_t key = StreamKey(source_.seed, static_cast<std::uint64_t>(index));
    for (std::size_t f = 0; f < x.size(); ++f) x[f] = static_cast<float>(Normal(key, f));
    for (std::size_t o = 0; o < y.size(); ++o) {
      double sum = source_.noise * Normal(key, x.size() + o);
      const float* row = weights_.data() + o * x.size();
      for (std::size_t f = 0; f < x.size(); ++f) sum += double{row[f]} * double{x[f]};
      y[o] = static_cast<float>(sum);
    }
    NormalizeF32(std::as_bytes(x), affine_, x.data());
  }

  SyntheticSource source_;
  Affine affine_;
  std::vector<float> weights_;  // [outputs, features]
  SampleSpec spec_;
};

double Polynomial(double x, std::initializer_list<double> falling) {
  double sum = 0;
  for (const double coefficient : falling) sum = sum * x + coefficient;
  return sum;
}

}  // namespace

double NormalQuantile(double p) {
  const double q = p - 0.5;
  if (std::abs(q) <= 0.425) {
    const double r = 0.180625 - q * q;
    return q * Polynomial(r, {59.109374720, 159.29113202, 50.434271938, 3.3871327179}) /
           Polynomial(r, {67.187563600, 78.757757664, 17.895169469, 1.0});
  }
  const double r = std::sqrt(-std::log(q < 0 ? p : 1 - p));
  const double size =
      r <= 5 ? Polynomial(r - 1.6, {0.17023821103, 1.3067284816, 2.7568153900, 1.4234372777}) /
                   Polynomial(r - 1.6, {0.12021132975, 0.73700164250, 1.0})
             : Polynomial(r - 5, {0.017337203997, 0.42868294337, 3.0812263860, 6.6579051150}) /
                   Polynomial(r - 5, {0.012258202635, 0.24197894225, 1.0});
  return q < 0 ? -size : size;
}

Result<std::unique_ptr<Dataset>> MakeSynthetic(const SyntheticSource& source,
                                               const NormalizeSpec& normalize) {
  if (source.samples < 1 || source.features < 1 || source.outputs < 1) {
    return Status(ErrorKind::kConfig,
                  StrCat("synthetic: expected samples, features and outputs of at least 1, found ",
                         source.samples, ", ", source.features, " and ", source.outputs));
  }
  if (source.features > kMaxWeights / source.outputs) {
    return Status(ErrorKind::kConfig, StrCat("synthetic: expected at most ", kMaxWeights,
                                             " weights (features x outputs), found ",
                                             source.features, " x ", source.outputs));
  }
  constexpr double kMostNoise = 1e30;  // so that targets are finite in f32
  if (!(source.noise >= 0 && source.noise <= kMostNoise)) {
    return Status(ErrorKind::kConfig, StrCat("synthetic: expected a noise of 0 to ", kMostNoise,
                                             ", found ", source.noise));
  }
  GACCD_ASSIGN_OR_RETURN(const Affine affine, MakeAffine(normalize, kLargestNormal));
  return std::unique_ptr<Dataset>(std::make_unique<SyntheticDataset>(source, affine));
}

}  // namespace gaccd
