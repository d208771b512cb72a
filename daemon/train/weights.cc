#include "daemon/train/weights.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "collectives/base/strings.h"
#include "daemon/model/safetensors.h"

namespace gaccd {
namespace {

std::size_t Size(std::int64_t value) { return static_cast<std::size_t>(value); }

Status CheckTensor(const std::string& path, const FlatLayout& layout, const NamedTensor& tensor) {
  const FlatEntry* entry = layout.Find(tensor.name);
  if (entry == nullptr) {
    return {ErrorKind::kData, StrCat(path, ": the model has no parameter '", tensor.name, "'")};
  }
  if (entry->shape != tensor.shape) {
    return {ErrorKind::kData, StrCat(path, ": ", tensor.name, ": expected shape ",
                                     ToString(entry->shape), ", found ", ToString(tensor.shape))};
  }
  const auto bad = std::find_if(tensor.values.begin(), tensor.values.end(),
                                [](float value) { return !std::isfinite(value); });
  if (bad == tensor.values.end()) return Status::Ok();
  return {ErrorKind::kData, StrCat(path, ": ", tensor.name, ": value ", bad - tensor.values.begin(),
                                   " is not finite: ", *bad)};
}

}  // namespace

Status LoadParameters(const std::string& path, const FlatLayout& layout,
                      std::span<float> parameters) {
  GACCD_ASSIGN_OR_RETURN(const SafetensorsFile file, ReadSafetensors(path));
  for (const NamedTensor& tensor : file.tensors) {
    GACCD_RETURN_IF_ERROR(CheckTensor(path, layout, tensor));
  }
  for (const FlatEntry& entry : layout.entries()) {
    const auto found = std::find_if(file.tensors.begin(), file.tensors.end(),
                                    [&](const NamedTensor& t) { return t.name == entry.name; });
    if (found == file.tensors.end()) {
      return {ErrorKind::kData, StrCat(path, ": no tensor '", entry.name, "' ",
                                       ToString(entry.shape), " among ", file.tensors.size())};
    }
    std::copy(found->values.begin(), found->values.end(),
              parameters.begin() + static_cast<std::ptrdiff_t>(entry.offset));
  }
  return Status::Ok();
}

Status SaveParameters(const std::string& path, const FlatLayout& layout,
                      std::span<const float> parameters, unsigned mode) {
  std::vector<TensorView> views;
  for (const FlatEntry& entry : layout.entries()) {
    views.push_back(
        {entry.name, entry.shape, parameters.subspan(Size(entry.offset), Size(entry.elements))});
  }
  return WriteSafetensors(path, views, mode);
}

}  // namespace gaccd
