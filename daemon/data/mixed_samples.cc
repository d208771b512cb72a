#include "daemon/data/mixed_samples.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <string>
#include <tuple>
#include <utility>

#include "collectives/base/strings.h"
#include "daemon/tensor/random.h"

namespace gaccd {

namespace {

// How row i of a batch is mixed.
struct RowMix {
  float lambda = 1;
  std::optional<Box> box;
  std::size_t partner = 0;  // row in the samples read
};

// The samples read for a batch: its own, then partners from outside of it.
struct Reading {
  std::vector<RowMix> rows;
  std::vector<std::int64_t> places;  // run positions
  std::vector<std::int64_t> samples;
};

// Copies the first rows of `from`, except the features.
void CopyOthers(const SampleSpec& spec, const BatchView& from, std::int64_t rows,
                const BatchView& to) {
  for (std::size_t t = 1; t < spec.tensors.size(); ++t) {
    std::copy_n(from.tensor<std::byte>(t), rows * spec.tensors[t].bytes(), to.tensor<std::byte>(t));
  }
}

// Divides `weight` between the two labels. The sum of both is exact: the smaller one is computed as
// the difference (Sterbenz).
std::pair<float, float> Share(float weight, float lambda) {
  if (lambda >= 0.5F) {
    const float own = weight * lambda;
    return {own, weight - own};
  }
  const float other = weight * (1 - lambda);
  return {weight - other, other};
}

class MixedSamples final : public DerivedDataset {
 public:
  MixedSamples(std::unique_ptr<Dataset> plain, const DataSpec& data, const SampleOrder& order)
      : DerivedDataset(std::move(plain)), data_(data), order_(order) {
    const Shape& shape = spec_.tensors[0].shape;
    if (shape.size() >= 2) {
      height_ = shape[shape.size() - 2];
      width_ = shape.back();
    }
    if (const TensorSpec* weights = spec_.Find("weights"); weights != nullptr) {
      weights_ = static_cast<std::size_t>(weights - spec_.tensors.data());
    }
    spec_.tensors.push_back({"mixed_labels", DType::kI32, {2}});
    spec_.tensors.push_back({"mixed_weights", DType::kF32, {2}});
  }

  void Gather(std::span<const std::int64_t> indices, const BatchView& out) const override {
    const Reading reading = Plan(indices, out);
    BatchMemory memory(base_->spec(), std::ssize(reading.samples));
    BatchView read = memory.view();
    read.augmentation_seed = out.augmentation_seed;
    read.run = out.run;
    if (out.run.update_samples > 0) read.run.rows = reading.places.data();
    base_->Gather(reading.samples, read);
    CopyOthers(base_->spec(), read, out.samples, out);
    for (std::size_t i = 0; i < reading.rows.size(); ++i) MixRow(reading.rows[i], read, i, out);
  }

  // The plain samples and, at most, as many partners.
  [[nodiscard]] std::int64_t gather_bytes(std::int64_t samples) const override {
    return base_->gather_bytes(2 * samples) + 2 * samples * SampleBytes(base_->spec());
  }

 private:
  [[nodiscard]] Reading Plan(std::span<const std::int64_t> indices, const BatchView& out) const {
    Reading reading{.rows = std::vector<RowMix>(indices.size()),
                    .places = {},
                    .samples = {indices.begin(), indices.end()}};
    for (std::size_t i = 0; i < indices.size(); ++i) {
      reading.rows[i].partner = i;
      reading.places.push_back(out.run.first + static_cast<std::int64_t>(i));
    }
    const std::int64_t end = out.position + std::ssize(indices);
    for (std::int64_t at = out.position; at < end && out.run.update_samples > 0;) {
      const std::int64_t group = at / data_.mix_group;
      AddGroup(group, out, std::min(end, (group + 1) * data_.mix_group), reading);
      at = (group + 1) * data_.mix_group;
    }
    return reading;
  }

  // Adds the rows of the batch in this group, up to position `end`.
  void AddGroup(std::int64_t group, const BatchView& out, std::int64_t end,
                Reading& reading) const {
    const std::int64_t first = group * data_.mix_group;
    const std::int64_t samples = std::min(data_.mix_group, out.run.update_samples - first);
    const GroupMix mix =
        DrawGroupMix(data_, MixKey(out.augmentation_seed, group), samples, height_, width_);
    if (mix.lambda == 1) return;
    const auto rows = std::ssize(reading.rows);
    for (std::int64_t at = std::max(first, out.position); at < end; ++at) {
      RowMix& row = reading.rows[static_cast<std::size_t>(at - out.position)];
      row.lambda = mix.lambda;
      row.box = mix.box;
      const std::int64_t partner =
          first + mix.partners[static_cast<std::size_t>(at - first)] - out.position;
      if (partner >= 0 && partner < rows) {
        row.partner = static_cast<std::size_t>(partner);
        continue;
      }
      row.partner = reading.samples.size();
      const std::int64_t place = out.run.first + partner;
      reading.places.push_back(place);
      reading.samples.push_back(order_.IndexAt(place / order_.size(), place % order_.size()));
    }
  }

  void MixRow(const RowMix& mix, const BatchView& read, std::size_t i, const BatchView& out) const {
    const auto values = static_cast<std::size_t>(spec_.tensors[0].elements());
    const float* own = read.tensor<float>(0) + i * values;
    const float* partner = read.tensor<float>(0) + mix.partner * values;
    float* to = out.tensor<float>(0) + i * values;
    if (mix.box) {
      std::copy_n(own, values, to);
      CopyBox(*mix.box, partner, to);
    } else if (mix.lambda == 1) {
      std::copy_n(own, values, to);
    } else {
      const float rest = 1 - mix.lambda;
      for (std::size_t v = 0; v < values; ++v) to[v] = mix.lambda * own[v] + rest * partner[v];
    }
    const auto* labels = read.tensor<std::int32_t>(1);
    const std::size_t added = base_->spec().tensors.size();
    auto* mixed_labels = out.tensor<std::int32_t>(added) + 2 * i;
    mixed_labels[0] = labels[i];
    mixed_labels[1] = labels[mix.partner];
    const float weight = weights_ ? read.tensor<float>(*weights_)[i] : 1.0F;
    auto* mixed_weights = out.tensor<float>(added + 1) + 2 * i;
    std::tie(mixed_weights[0], mixed_weights[1]) = Share(weight, mix.lambda);
  }

  void CopyBox(const Box& box, const float* from, float* to) const {
    const std::int64_t planes = spec_.tensors[0].elements() / (height_ * width_);
    for (std::int64_t plane = 0; plane < planes; ++plane) {
      for (std::int64_t y = box.top; y < box.top + box.height; ++y) {
        const std::int64_t at = (plane * height_ + y) * width_ + box.left;
        std::copy_n(from + at, box.width, to + at);
      }
    }
  }

  DataSpec data_;
  SampleOrder order_;
  std::int64_t height_ = 1;  // of images
  std::int64_t width_ = 1;
  std::optional<std::size_t> weights_;  // in the spec
};

}  // namespace

Result<std::unique_ptr<Dataset>> MixSamples(std::unique_ptr<Dataset> plain, const DataSpec& data,
                                            const SampleOrder& order) {
  const SampleSpec& spec = plain->spec();
  const std::string name = data.cutmix ? "data.cutmix" : "data.mixup";
  const bool labelled = spec.tensors.size() >= 2 && spec.tensors[0].name == "features" &&
                        spec.tensors[1] == TensorSpec{"labels", DType::kI32, {}};
  if (!labelled) {
    return Status(
        ErrorKind::kConfig,
        StrCat(name, ": expected features with one label each, found samples of ", Describe(spec)));
  }
  const std::size_t dimensions = spec.tensors[0].shape.size();
  if (data.cutmix && dimensions != 2 && dimensions != 3) {
    return Status(ErrorKind::kConfig,
                  StrCat(name, ": expected images, [height, width] or [channels, height, width], ",
                         "found features ", ToString(spec.tensors[0].shape)));
  }
  std::unique_ptr<Dataset> mixed = std::make_unique<MixedSamples>(std::move(plain), data, order);
  return mixed;
}

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

std::uint64_t MixKey(std::uint64_t augmentation_seed, std::int64_t group) {
  return StreamKey(StreamKey(augmentation_seed, kMixStream), static_cast<std::uint64_t>(group));
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
