#include <limits>

#include "tests/support/engine_runs.h"

namespace gaccd::tests {
namespace {

// Values that depend on the number of the sample and nothing else.
float FeatureValue(std::int64_t sample, std::int64_t place) {
  auto bits = static_cast<std::uint64_t>(sample) * 0x9E3779B97F4A7C15U +
              static_cast<std::uint64_t>(place) * 0xD1B54A32D192ED03U;
  bits ^= bits >> 29;
  bits *= 0xBF58476D1CE4E5B9U;
  bits ^= bits >> 32;
  return static_cast<float>(bits >> 40) / static_cast<float>(1 << 23) - 1.0F;
}

class TokenDataset final : public Dataset {
 public:
  TokenDataset(std::int64_t size, const SampleSpec& spec) : size_(size), spec_(spec) {}
  [[nodiscard]] std::int64_t size() const override { return size_; }
  [[nodiscard]] const SampleSpec& spec() const override { return spec_; }
  void Gather(std::span<const std::int64_t> indices, const BatchView& out) const override {
    const std::int64_t length = spec_.tensors[0].elements();
    for (std::size_t i = 0; i < indices.size(); ++i) {
      const std::int64_t sample = indices[i];
      const std::int64_t labelled = sample * sample * 5 % (length + 1);
      for (std::int64_t t = 0; t < length; ++t) {
        const std::int64_t at = static_cast<std::int64_t>(i) * length + t;
        const auto label = (sample * 7 + t * 3 + 1) % spec_.classes;
        out.tensor<std::int32_t>(0)[at] =
            static_cast<std::int32_t>((sample * 5 + t * t) % spec_.vocabulary);
        out.tensor<std::int32_t>(1)[at] = static_cast<std::int32_t>(t < labelled ? label : -100);
        if (spec_.Find("weights") != nullptr)
          out.tensor<float>(2)[at] = 1.25F + FeatureValue(sample, t);
      }
    }
  }

 private:
  std::int64_t size_;
  SampleSpec spec_;
};

class TextDataset final : public Dataset {
 public:
  TextDataset(std::int64_t size, const SampleSpec& spec) : size_(size), spec_(spec) {}
  [[nodiscard]] std::int64_t size() const override { return size_; }
  [[nodiscard]] const SampleSpec& spec() const override { return spec_; }
  [[nodiscard]] std::int64_t Length(std::int64_t index) const override {
    return index * index * 5 % spec_.tensors[0].elements() + 1;
  }
  void Gather(std::span<const std::int64_t> indices, const BatchView& out) const override {
    const std::int64_t row = out.length > 0 ? out.length : spec_.tensors[0].elements();
    for (std::size_t i = 0; i < indices.size(); ++i) {
      const std::int64_t sample = indices[i];
      for (std::int64_t t = 0; t < row; ++t) {
        const std::int64_t at = static_cast<std::int64_t>(i) * row + t;
        out.tensor<std::int32_t>(0)[at] =
            static_cast<std::int32_t>((sample * 5 + t * t) % spec_.vocabulary);
        out.tensor<std::int32_t>(1)[at] = static_cast<std::int32_t>(2 * t < Length(sample));
      }
      out.tensor<std::int32_t>(2)[i] = static_cast<std::int32_t>(Length(sample));
      if (spec_.classes == 0) continue;
      out.tensor<std::int32_t>(3)[i] = static_cast<std::int32_t>((sample * 7 + 3) % spec_.classes);
    }
  }

 private:
  std::int64_t size_;
  SampleSpec spec_;
};

class HashedDataset final : public Dataset {
 public:
  HashedDataset(std::int64_t size, const SampleSpec& spec, std::int64_t poisoned)
      : size_(size), spec_(spec), poisoned_(poisoned) {
    for (std::size_t t = 0; t < spec.tensors.size(); ++t) {
      if (spec.tensors[t].name == "features") {
        features_ = t;
      } else if (spec.tensors[t].name != "unused") {
        answers_ = t;
      }
    }
  }
  [[nodiscard]] std::int64_t size() const override { return size_; }
  [[nodiscard]] const SampleSpec& spec() const override { return spec_; }
  void Gather(std::span<const std::int64_t> indices, const BatchView& out) const override {
    const std::int64_t width = spec_.tensors[features_].elements();
    const std::int64_t targets = spec_.classes > 0 ? 0 : spec_.tensors[answers_].elements();
    auto* features = out.tensor<float>(features_);
    for (std::size_t i = 0; i < indices.size(); ++i) {
      const auto row = static_cast<std::int64_t>(i);
      const std::int64_t sample = indices[i];
      for (std::int64_t f = 0; f < width; ++f) features[row * width + f] = FeatureValue(sample, f);
      if (sample == poisoned_) features[row * width] = std::numeric_limits<float>::quiet_NaN();
      if (spec_.classes > 0) {
        out.tensor<std::int32_t>(answers_)[row] =
            static_cast<std::int32_t>((sample * 7 + 3) % spec_.classes);
      }
      for (std::int64_t t = 0; t < targets; ++t) {
        out.tensor<float>(answers_)[row * targets + t] = FeatureValue(sample, 1000 + t);
      }
    }
  }

 private:
  std::int64_t size_;
  SampleSpec spec_;
  std::int64_t poisoned_;
  std::size_t features_ = 0;  // in the spec
  std::size_t answers_ = 0;
};

}  // namespace

std::unique_ptr<Dataset> TokenData(std::int64_t size, const SampleSpec& spec) {
  return std::make_unique<TokenDataset>(size, spec);
}

std::unique_ptr<Dataset> TextData(std::int64_t size, const SampleSpec& spec) {
  return std::make_unique<TextDataset>(size, spec);
}

std::unique_ptr<Dataset> HashedData(std::int64_t size, const SampleSpec& spec,
                                    std::int64_t poisoned) {
  return std::make_unique<HashedDataset>(size, spec, poisoned);
}

}  // namespace gaccd::tests
