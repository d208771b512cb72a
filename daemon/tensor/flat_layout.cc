#include "daemon/tensor/flat_layout.h"

#include <algorithm>
#include <utility>

#include "collectives/base/strings.h"

namespace gaccd {

std::string GroupText(const OptimizerGroup& group) {
  std::string text = "decay";
  if (group.weight_decay) {
    text = *group.weight_decay == 0 ? "no_decay" : StrCat("weight_decay ", *group.weight_decay);
  }
  return group.lr_factor == 1 ? text : StrCat(text, ", lr_factor ", group.lr_factor);
}

std::int64_t FlatEntry::padded_elements() const {
  constexpr std::int64_t kAlignment = FlatLayout::kAlignment;
  return (elements + kAlignment - 1) / kAlignment * kAlignment;
}

Result<std::size_t> FlatLayout::Add(std::string name, Shape shape, const OptimizerGroup& group,
                                    bool frozen) {
  if (Find(name) != nullptr) {
    return Status(ErrorKind::kConfig, StrCat("parameter '", name, "' appears twice"));
  }
  GACCD_RETURN_IF_ERROR(CheckShape(shape, DType::kF32).WithContext(name));
  const std::int64_t elements = Elements(shape);
  entries_.push_back({std::move(name), std::move(shape), size_, elements, group, frozen});
  size_ += entries_.back().padded_elements();
  return entries_.size() - 1;
}

void FlatLayout::SetBuffer(std::size_t index) {
  entries_[index].frozen = true;
  entries_[index].buffer = true;
}

void FlatLayout::SetGroup(std::size_t index, const OptimizerGroup& group, bool frozen) {
  entries_[index].group = group;
  entries_[index].frozen = frozen;
}

FlatLayout FlatLayout::PlacedAt(std::span<const std::int64_t> offsets, std::int64_t size) const {
  FlatLayout placed = *this;
  for (std::size_t i = 0; i < entries_.size(); ++i) placed.entries_[i].offset = offsets[i];
  placed.size_ = size;
  return placed;
}

std::int64_t FlatLayout::trainable_size() const {
  std::int64_t sum = 0;
  for (const FlatEntry& entry : entries_) sum += entry.frozen ? 0 : entry.padded_elements();
  return sum;
}

std::int64_t FlatLayout::parameters() const {
  std::int64_t sum = 0;
  for (const FlatEntry& entry : entries_) sum += entry.buffer ? 0 : entry.elements;
  return sum;
}

const FlatEntry* FlatLayout::Find(std::string_view name) const {
  const auto found = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const FlatEntry& entry) { return entry.name == name; });
  return found == entries_.end() ? nullptr : &*found;
}

}  // namespace gaccd
