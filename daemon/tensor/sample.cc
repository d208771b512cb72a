#include "daemon/tensor/sample.h"

#include <algorithm>
#include <new>
#include <utility>

#include "collectives/base/strings.h"

namespace gaccd {

const TensorSpec* SampleSpec::Find(std::string_view name) const {
  const auto found = std::ranges::find(tensors, name, &TensorSpec::name);
  return found == tensors.end() ? nullptr : &*found;
}

bool IsPerToken(const TensorSpec& tensor) {
  return tensor.name == "tokens" || tensor.name == "segments" ||
         (tensor.name == "labels" && !tensor.shape.empty());
}

SampleSpec CutTo(SampleSpec spec, std::int64_t length) {
  if (length == 0) return spec;
  for (TensorSpec& tensor : spec.tensors) {
    if (IsPerToken(tensor)) tensor.shape = {length};
  }
  return spec;
}

std::int64_t RowBytes(const TensorSpec& tensor, std::int64_t length) {
  const bool cut = length > 0 && IsPerToken(tensor);
  return cut ? length * static_cast<std::int64_t>(SizeOf(tensor.dtype)) : tensor.bytes();
}

SampleSpec LabelledSample(Shape features, std::int64_t classes) {
  return {.tensors = {{"features", DType::kF32, std::move(features)}, {"labels", DType::kI32, {}}},
          .classes = classes};
}

SampleSpec TargetSample(Shape features, std::int64_t width) {
  return {.tensors = {{"features", DType::kF32, std::move(features)},
                      {"targets", DType::kF32, {width}}}};
}

void SampleSpec::LimitVocabulary(const std::string& tensor, std::int64_t limit) {
  std::int64_t& known = tensor == "tokens" ? vocabulary : other_vocabularies[tensor];
  known = known == 0 ? limit : std::min(known, limit);
}

std::string Describe(const SampleSpec& spec) {
  std::string text;
  for (const TensorSpec& tensor : spec.tensors) {
    text += StrCat(text.empty() ? "" : ", ", tensor.name, " ", Name(tensor.dtype), " ",
                   ToString(tensor.shape));
  }
  const TensorSpec* labels = spec.Find("labels");  // of a language model they are tokens
  const bool tokens =
      labels != nullptr && !labels->shape.empty() && spec.classes == spec.vocabulary;
  if (spec.classes > 0 && !tokens) text += StrCat(", ", spec.classes, " classes");
  if (spec.vocabulary > 0) text += StrCat(", a vocabulary of ", spec.vocabulary);
  for (const auto& [name, vocabulary] : spec.other_vocabularies) {
    text += StrCat(", a vocabulary of ", vocabulary, " for '", name, "'");
  }
  if (spec.ignored_label != kIgnoredLabel) {
    text += StrCat(", ignored label ", spec.ignored_label);
  }
  return text;
}

BatchView Rows(const SampleSpec& spec, const BatchView& batch, std::size_t first, std::size_t count,
               std::span<void*> tensors) {
  BatchView rows = batch;
  rows.samples = static_cast<std::int64_t>(count);
  if (rows.ids != nullptr) rows.ids += first;
  rows.position += static_cast<std::int64_t>(first);
  rows.run.first += static_cast<std::int64_t>(first);
  if (rows.run.rows != nullptr) rows.run.rows += first;
  for (std::size_t t = 0; t < batch.tensors.size(); ++t) {
    const auto row = static_cast<std::size_t>(RowBytes(spec.tensors[t], batch.length));
    tensors[t] = batch.tensor<std::byte>(t) + first * row;
  }
  rows.tensors = tensors.first(batch.tensors.size());
  return rows;
}

std::int64_t SampleBytes(const SampleSpec& spec) {
  std::int64_t bytes = sizeof(std::int64_t);
  for (const TensorSpec& tensor : spec.tensors) bytes += tensor.bytes();
  return bytes;
}

BatchMemory::BatchMemory(const SampleSpec& spec, std::int64_t samples)
    : ids_(static_cast<std::size_t>(samples)) {
  for (const TensorSpec& tensor : spec.tensors) {
    const auto bytes = static_cast<std::size_t>(samples * tensor.bytes());
    // Pages from calloc are zero without being written; a vector would write them.
    auto* const data = static_cast<std::byte*>(std::calloc(bytes, 1));
    if (data == nullptr && bytes > 0) throw std::bad_alloc();
    memory_.push_back({std::unique_ptr<std::byte, Free>(data), bytes});
    pointers_.push_back(data);
  }
}

std::int64_t BatchMemory::bytes() const {
  std::size_t bytes = ids_.size() * sizeof(std::int64_t);
  for (const Memory& memory : memory_) bytes += memory.bytes;
  return static_cast<std::int64_t>(bytes);
}

BatchView BatchMemory::Copy(const SampleSpec& spec, const BatchView& batch) {
  BatchView copy = batch;
  copy.tensors = pointers_;
  copy.ids = ids_.data();
  if (batch.samples == 0) return copy;
  for (std::size_t t = 0; t < memory_.size(); ++t) {
    const std::int64_t bytes = batch.samples * RowBytes(spec.tensors[t], batch.length);
    std::copy_n(batch.tensor<std::byte>(t), bytes, memory_[t].data.get());
  }
  if (batch.ids != nullptr) std::copy_n(batch.ids, batch.samples, ids_.data());
  return copy;
}

}  // namespace gaccd
