#include "daemon/data/mixed_samples.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "collectives/base/strings.h"
#include "daemon/data/mix_group.h"

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

class MixedSamples final : public Dataset {
 public:
  MixedSamples(std::unique_ptr<Dataset> plain, const DataSpec& data, const SampleOrder& order)
      : plain_(std::move(plain)), data_(data), order_(order), spec_(plain_->spec()) {
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

  [[nodiscard]] std::int64_t size() const override { return plain_->size(); }
  [[nodiscard]] const SampleSpec& spec() const override { return spec_; }
  [[nodiscard]] std::span<const BadRecord> bad_records() const override {
    return plain_->bad_records();
  }
  [[nodiscard]] Status CheckUnchanged() const override { return plain_->CheckUnchanged(); }
  [[nodiscard]] Status ReadError() const override { return plain_->ReadError(); }
  [[nodiscard]] std::string conversions() const override { return plain_->conversions(); }
  [[nodiscard]] LabelCounts CountLabels(std::span<const std::int64_t> indices) const override {
    return plain_->CountLabels(indices);
  }

  void Gather(std::span<const std::int64_t> indices, const BatchView& out) const override {
    const Reading reading = Plan(indices, out);
    BatchMemory memory(plain_->spec(), std::ssize(reading.samples));
    BatchView read = memory.view();
    read.draw = out.draw;
    read.run = out.run;
    if (out.run.update_samples > 0) read.run.rows = reading.places.data();
    plain_->Gather(reading.samples, read);
    CopyOthers(plain_->spec(), read, out.samples, out);
    for (std::size_t i = 0; i < reading.rows.size(); ++i) MixRow(reading.rows[i], read, i, out);
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
    const GroupMix mix = DrawGroupMix(data_, MixKey(out.draw, group), samples, height_, width_);
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
    const std::size_t added = plain_->spec().tensors.size();
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

  std::unique_ptr<Dataset> plain_;
  DataSpec data_;
  SampleOrder order_;
  SampleSpec spec_;
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

}  // namespace gaccd
