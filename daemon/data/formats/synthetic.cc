#include "collectives/base/strings.h"
#include "daemon/data/normalize.h"
#include "daemon/data/sources.h"
#include "daemon/tensor/random.h"

namespace gaccd {
namespace {

constexpr std::int64_t kMaxWeights = std::int64_t{1} << 26;
constexpr std::uint64_t kWeightStream = 0x57;  // for W, independent of the seed

constexpr float kLargestNormal = 9;  // StandardNormal(), from 53 bits, is at most 8.3

class SyntheticDataset final : public Dataset {
 public:
  SyntheticDataset(const SyntheticSpec& source, Affine affine)
      : source_(source),
        affine_(affine),
        weights_(static_cast<std::size_t>(source.features * source.outputs)) {
    spec_ = TargetSample({source.features}, source.outputs);
    const std::uint64_t key = StreamKey(kWeightStream, static_cast<std::uint64_t>(source.features));
    for (std::size_t i = 0; i < weights_.size(); ++i) {
      weights_[i] = static_cast<float>(StandardNormal(key, i));
    }
  }

  [[nodiscard]] std::int64_t size() const override { return source_.samples; }
  [[nodiscard]] const SampleSpec& spec() const override { return spec_; }

  void Gather(std::span<const std::int64_t> indices, const BatchView& out) const override {
    const auto features = static_cast<std::size_t>(source_.features);
    const auto outputs = static_cast<std::size_t>(source_.outputs);
    for (std::size_t i = 0; i < indices.size(); ++i) {
      Make(indices[i], {out.tensor<float>(0) + i * features, features},
           {out.tensor<float>(1) + i * outputs, outputs});
    }
  }

 private:
  void Make(std::int64_t index, std::span<float> x, std::span<float> y) const {
    const std::uint64_t key = StreamKey(source_.seed, static_cast<std::uint64_t>(index));
    for (std::size_t f = 0; f < x.size(); ++f) x[f] = static_cast<float>(StandardNormal(key, f));
    for (std::size_t o = 0; o < y.size(); ++o) {
      double sum = source_.noise * StandardNormal(key, x.size() + o);
      const float* row = weights_.data() + o * x.size();
      for (std::size_t f = 0; f < x.size(); ++f) sum += double{row[f]} * double{x[f]};
      y[o] = static_cast<float>(sum);
    }
    NormalizeF32(std::as_bytes(x), affine_, x.data());
  }

  SyntheticSpec source_;
  Affine affine_;
  std::vector<float> weights_;  // [outputs, features]
  SampleSpec spec_;
};

}  // namespace

Result<std::unique_ptr<Dataset>> MakeSynthetic(const SyntheticSpec& source,
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
  constexpr double kMaxNoise = 1e30;  // so that targets are finite in f32
  if (!(source.noise >= 0 && source.noise <= kMaxNoise)) {
    return Status(ErrorKind::kConfig, StrCat("synthetic: expected a noise of 0 to ", kMaxNoise,
                                             ", found ", source.noise));
  }
  GACCD_ASSIGN_OR_RETURN(const Affine affine, MakeAffine(normalize, kLargestNormal));
  return std::unique_ptr<Dataset>(std::make_unique<SyntheticDataset>(source, affine));
}

}  // namespace gaccd
