#include "daemon/data/array.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "collectives/base/simd.h"
#include "collectives/base/strings.h"
#include "daemon/data/bad_records.h"
#include "daemon/data/mapped_file.h"
#include "daemon/data/node_share.h"
#include "daemon/data/normalize.h"

namespace gaccd {
namespace {

static_assert(std::endian::native == std::endian::little, "files are read as little endian");

class ArrayDataset final : public Dataset {
 public:
  ArrayDataset(Array features, Array targets, std::vector<std::int32_t> labels, SampleSpec spec,
               Affine affine)
      : features_(std::move(features)),
        targets_(std::move(targets)),
        labels_(std::move(labels)),
        spec_(std::move(spec)),
        affine_(affine),
        row_elements_(static_cast<std::size_t>(spec_.tensors[0].elements())),
        row_bytes_(row_elements_ * SizeOf(features_.dtype)),
        target_bytes_(static_cast<std::size_t>(spec_.tensors[1].bytes())) {}

  [[nodiscard]] std::int64_t size() const override { return features_.shape[0]; }
  [[nodiscard]] const SampleSpec& spec() const override { return spec_; }

  [[nodiscard]] Status CheckUnchanged() const override {
    for (const Array* array : {&features_, &targets_}) {
      if (array->file != nullptr) GACCD_RETURN_IF_ERROR(array->file->CheckUnchanged());
    }
    return Status::Ok();
  }

  void Gather(std::span<const std::int64_t> indices, const BatchView& out) const override {
    auto* features = out.tensor<float>(0);
    for (std::size_t i = 0; i < indices.size(); ++i) {
      if (i + kRowsAhead < indices.size()) PrefetchRow(indices[i + kRowsAhead]);
      const auto index = static_cast<std::size_t>(indices[i]);
      const auto row = features_.data.subspan(index * row_bytes_, row_bytes_);
      if (features_.dtype == DType::kU8) {
        NormalizeU8(row, affine_, features);
      } else {
        NormalizeF32(row, affine_, features);
      }
      features += row_elements_;
      if (spec_.classes > 0) {
        out.tensor<std::int32_t>(1)[i] = labels_[index];
      } else {
        std::memcpy(out.tensor<std::byte>(1) + i * target_bytes_,
                    targets_.data.data() + index * target_bytes_, target_bytes_);
      }
    }
  }

 private:
  // Rows lie anywhere in memory, so the loop would mostly wait for it. Large rows are left to the
  // processor, which sees by itself that they are read in order.
  static constexpr std::size_t kRowsAhead = 4;
  static constexpr std::size_t kMaxPrefetchBytes = 2048;
  void PrefetchRow(std::int64_t index) const {
    const std::byte* row = features_.data.data() + static_cast<std::size_t>(index) * row_bytes_;
    const std::size_t bytes = std::min(row_bytes_, kMaxPrefetchBytes);
    for (std::size_t at = 0; at < bytes; at += 64) __builtin_prefetch(row + at);
  }

  Array features_;
  Array targets_;  // empty when the targets are labels
  std::vector<std::int32_t> labels_;
  SampleSpec spec_;
  Affine affine_;
  std::size_t row_elements_;
  std::size_t row_bytes_;
  std::size_t target_bytes_;
};

template <typename T>
Result<std::vector<std::int32_t>> CheckedLabels(const Array& targets, std::int64_t classes,
                                                BadRecords* bad) {
  const auto samples = static_cast<std::size_t>(targets.shape[0]);
  std::vector<std::int32_t> labels(samples);
  for (std::size_t i = 0; i < samples; ++i) {
    T stored = 0;
    std::memcpy(&stored, targets.data.data() + i * sizeof(T), sizeof(T));
    const auto label = static_cast<std::int64_t>(stored);
    if (label < 0 || label >= classes) {
      GACCD_RETURN_IF_ERROR(
          bad->Take(static_cast<std::int64_t>(i),
                    {ErrorKind::kData, StrCat(targets.name, ": expected labels in [0, ", classes,
                                              "), found ", label, " for sample ", i)}));
      continue;
    }
    labels[i] = static_cast<std::int32_t>(label);
  }
  return labels;
}

Result<std::vector<std::int32_t>> ReadLabels(const Array& targets, std::int64_t classes,
                                             BadRecords* bad) {
  if (classes > std::numeric_limits<std::int32_t>::max()) {
    return Status(ErrorKind::kData,
                  StrCat(targets.name, ": expected at most ",
                         std::numeric_limits<std::int32_t>::max(), " classes, found ", classes));
  }
  if (targets.shape.size() != 1) {
    return Status(ErrorKind::kData,
                  StrCat(targets.name, ": expected labels of shape [samples], found shape ",
                         ToString(targets.shape)));
  }
  switch (targets.dtype) {
    case DType::kU8:
      return CheckedLabels<std::uint8_t>(targets, classes, bad);
    case DType::kI32:
      return CheckedLabels<std::int32_t>(targets, classes, bad);
    case DType::kI64:
      return CheckedLabels<std::int64_t>(targets, classes, bad);
    case DType::kF32:
    case DType::kF64:
    case DType::kBF16:
      break;
  }
  return Status(ErrorKind::kData, StrCat(targets.name,
                                         ": expected integer labels, because the job "
                                         "gives ",
                                         classes, " classes, found ", Name(targets.dtype),
                                         "; save array.astype('int64')"));
}

// Some of `count` floats, aligned to nothing, is NaN or infinite when it is normalised: all its
// exponent bits are set. No early exit, so that the compiler works on whole vectors.
GACCD_SIMD_CLONES bool AnyNotFinite(const std::byte* data, std::size_t count, Affine affine) {
  constexpr std::uint32_t kExponent = 0x7f800000;
  std::uint32_t found = 0;
  for (std::size_t i = 0; i < count; ++i) {
    float stored = 0;
    std::memcpy(&stored, data + i * sizeof(stored), sizeof(stored));
    const auto bits = std::bit_cast<std::uint32_t>(stored * affine.factor + affine.shift);
    found |= static_cast<std::uint32_t>((bits & kExponent) == kExponent);
  }
  return found != 0;
}

std::string NotFinite(const Array& array, float stored, std::size_t sample, std::size_t column) {
  return StrCat(array.name, ": expected finite values",
                std::isfinite(stored) ? " after normalize" : "", ", found ", stored, " for sample ",
                sample, ", column ", column);
}

// One NaN would poison the weights updates later, where nobody sees from which file it came.
Status CheckFinite(const Array& array, Affine affine, BadRecords* bad, NodeShare* share) {
  if (array.dtype != DType::kF32) return Status::Ok();
  // A file may be used twice, but not with the same normalisation.
  const std::string known = StrCat(std::bit_cast<std::uint32_t>(affine.factor), " ",
                                   std::bit_cast<std::uint32_t>(affine.shift), " ", array.name);
  if (share != nullptr && share->IsFinite(known)) return Status::Ok();
  bool finite = true;
  constexpr std::size_t kBlock = 16384;  // of one block, only a bad one is looked at closely
  constexpr std::size_t kElementsATick = 1024 * kBlock;
  const std::size_t elements = array.data.size() / sizeof(float);
  for (std::size_t begin = 0; begin < elements; begin += kBlock) {
    const std::size_t end = std::min(elements, begin + kBlock);
    if (share != nullptr && begin % kElementsATick == 0) GACCD_RETURN_IF_ERROR(share->Tick());
    if (!AnyNotFinite(array.data.data() + begin * sizeof(float), end - begin, affine)) continue;
    finite = false;
    const std::size_t row = elements / static_cast<std::size_t>(array.shape[0]);
    for (std::size_t at = begin; at < end; ++at) {
      if (!AnyNotFinite(array.data.data() + at * sizeof(float), 1, affine)) continue;
      float stored = 0;
      std::memcpy(&stored, array.data.data() + at * sizeof(float), sizeof(stored));
      GACCD_RETURN_IF_ERROR(
          bad->Take(static_cast<std::int64_t>(at / row),
                    {ErrorKind::kData, NotFinite(array, stored, at / row, at % row)}));
      at += row - 1 - at % row;  // the sample is known to be bad
    }
  }
  if (finite && share != nullptr) share->MarkFinite(known);
  return Status::Ok();
}

Status CheckVectors(const Array& targets) {
  if (targets.dtype != DType::kF32) {
    return {ErrorKind::kData,
            StrCat(targets.name,
                   ": expected f32 targets, because the job gives no number of "
                   "classes, found ",
                   Name(targets.dtype), "; give classes, or save array.astype('float32')")};
  }
  if (targets.shape.size() > 2 || (targets.shape.size() == 2 && targets.shape[1] == 0)) {
    return {ErrorKind::kData,
            StrCat(targets.name, ": expected targets of shape [samples, width], found shape ",
                   ToString(targets.shape))};
  }
  return Status::Ok();
}

Status CheckFeatures(const Array& features) {
  if (features.dtype != DType::kU8 && features.dtype != DType::kF32) {
    return {ErrorKind::kData, StrCat(features.name, ": expected u8 or f32 features, found ",
                                     Name(features.dtype), "; save array.astype('float32')")};
  }
  if (features.shape.size() < 2) {
    return {ErrorKind::kData,
            StrCat(features.name, ": expected features of shape [samples, ...], found shape ",
                   ToString(features.shape))};
  }
  if (features.data.empty()) {
    return {ErrorKind::kData, StrCat(features.name,
                                     ": expected at least one sample with at least "
                                     "one feature, found shape ",
                                     ToString(features.shape))};
  }
  // In f32 the samples may take four times their bytes; sizes in memory must stay countable.
  return ArrayBytes(features.name, features.shape, DType::kF32).status();
}

}  // namespace

Result<std::int64_t> ArrayBytes(const std::string& name, const Shape& shape, DType dtype) {
  auto product = static_cast<std::int64_t>(SizeOf(dtype));
  for (const std::int64_t dim : shape) {
    if (dim < 0 || __builtin_mul_overflow(product, dim, &product)) {
      return Status(ErrorKind::kData, StrCat(name, ": the size of shape ", ToString(shape), ", ",
                                             Name(dtype), ", does not fit 63 bits"));
    }
  }
  return product;
}

Result<std::unique_ptr<Dataset>> MakeArrayDataset(Array features, Array targets,
                                                  std::int64_t classes,
                                                  const NormalizeSpec& normalize,
                                                  const BadRecordRules& rules, NodeShare* share) {
  BadRecords bad(rules);
  // What f32 features become is looked at one by one, below.
  GACCD_ASSIGN_OR_RETURN(const Affine affine,
                         MakeAffine(normalize, features.dtype == DType::kU8 ? 255.0F : 0.0F));
  GACCD_RETURN_IF_ERROR(CheckFeatures(features));
  const std::int64_t targets_found = targets.shape.empty() ? 0 : targets.shape[0];
  if (targets_found != features.shape[0]) {
    return Status(
        ErrorKind::kData,
        StrCat(targets.name, ": expected ", features.shape[0], " targets, as many as samples in ",
               features.name, ", found ", targets_found, " (shape ", ToString(targets.shape), ")"));
  }
  SampleSpec spec;
  const Shape feature_shape(features.shape.begin() + 1, features.shape.end());
  std::vector<std::int32_t> labels;
  if (classes > 0) {
    spec = LabelledSample(feature_shape, classes);
    GACCD_ASSIGN_OR_RETURN(labels, ReadLabels(targets, classes, &bad));
    targets = Array{};  // the labels were copied
  } else {
    GACCD_RETURN_IF_ERROR(CheckVectors(targets));
    GACCD_RETURN_IF_ERROR(CheckFinite(targets, Affine{}, &bad, share));
    spec = TargetSample(feature_shape, targets.shape.size() == 2 ? targets.shape[1] : 1);
  }
  GACCD_RETURN_IF_ERROR(
      CheckFinite(features, affine, &bad, share));  // last: it reads the whole file
  return std::move(bad).Skip(std::make_unique<ArrayDataset>(
      std::move(features), std::move(targets), std::move(labels), std::move(spec), affine));
}

}  // namespace gaccd
