#include "daemon/tensor/flat_layout.h"

#include <algorithm>
#include <utility>

#include "collectives/base/strings.h"

namespace gaccd {

Result<std::size_t> FlatLayout::Add(std::string name, Shape shape) {
  if (Find(name) != nullptr) {
    return Status(ErrorKind::kConfig, StrCat("parameter '", name, "' appears twice"));
  }
  GACCD_RETURN_IF_ERROR(CheckShape(shape, DType::kF32).WithContext(name));
  const std::int64_t elements = Elements(shape);
  entries_.push_back({std::move(name), std::move(shape), size_, elements});
  size_ += (elements + kAlignment - 1) / kAlignment * kAlignment;
  return entries_.size() - 1;
}

std::int64_t FlatLayout::parameters() const {
  std::int64_t sum = 0;
  for (const FlatEntry& entry : entries_) sum += entry.elements;
  return sum;
}

const FlatEntry* FlatLayout::Find(std::string_view name) const {
  const auto found = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const FlatEntry& entry) { return entry.name == name; });
  return found == entries_.end() ? nullptr : &*found;
}

}  // namespace gaccd
