#include "daemon/train/weights.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string_view>
#include <vector>

#include "collectives/base/strings.h"
#include "daemon/model/safetensors.h"

namespace gaccd {
namespace {

std::size_t Size(std::int64_t value) { return static_cast<std::size_t>(value); }

Status CheckTensor(const std::string& path, const FlatEntry& entry, const NamedTensor& tensor) {
  if (entry.shape != tensor.shape) {
    return {ErrorKind::kData, StrCat(path, ": ", tensor.name, ": expected shape ",
                                     ToString(entry.shape), ", found ", ToString(tensor.shape))};
  }
  const auto bad = std::find_if(tensor.values.begin(), tensor.values.end(),
                                [](float value) { return !std::isfinite(value); });
  if (bad == tensor.values.end()) return Status::Ok();
  return {ErrorKind::kData, StrCat(path, ": ", tensor.name, ": value ", bad - tensor.values.begin(),
                                   " is not finite: ", *bad)};
}

using ByParameter = std::map<std::string_view, const NamedTensor*>;

// The tensors of the file under the names of the parameters.
Result<ByParameter> MatchTensors(const std::string& path, const FlatLayout& layout,
                                 const WeightNames& names, const SafetensorsFile& file) {
  ByParameter found;
  for (const NamedTensor& tensor : file.tensors) {
    const FlatEntry* entry = layout.Find(tensor.name);
    if (entry == nullptr) entry = layout.Find(names.prefix + tensor.name);
    if (entry != nullptr) {
      GACCD_RETURN_IF_ERROR(CheckTensor(path, *entry, tensor));
      if (!found.emplace(entry->name, &tensor).second) {
        return Status(ErrorKind::kData, StrCat(path, ": two tensors for '", entry->name, "'"));
      }
      continue;
    }
    const bool buffer = std::ranges::any_of(
        names.buffers, [&](const std::string& end) { return tensor.name.ends_with(end); });
    if (buffer || names.tied.contains(tensor.name)) continue;
    return Status(ErrorKind::kData,
                  StrCat(path, ": the model has no parameter '", tensor.name, "'"));
  }
  return found;
}

Status CheckTied(const std::string& path, const WeightNames& names, const SafetensorsFile& file,
                 const ByParameter& found) {
  for (const NamedTensor& tensor : file.tensors) {
    const auto tied = names.tied.find(tensor.name);
    if (tied == names.tied.end()) continue;
    const auto original = found.find(tied->second);
    if (original != found.end() && original->second->values == tensor.values) continue;
    return {ErrorKind::kData, StrCat(path, ": ", tensor.name, ": expected the values of ",
                                     tied->second, ", which the model uses in its place")};
  }
  return Status::Ok();
}

}  // namespace

Status LoadParameters(const std::string& path, const FlatLayout& layout,
                      std::span<float> parameters, const WeightNames& names) {
  GACCD_ASSIGN_OR_RETURN(const SafetensorsFile file, ReadSafetensors(path));
  GACCD_ASSIGN_OR_RETURN(const ByParameter found, MatchTensors(path, layout, names, file));
  GACCD_RETURN_IF_ERROR(CheckTied(path, names, file, found));
  for (const FlatEntry& entry : layout.entries()) {
    const auto tensor = found.find(entry.name);
    if (tensor == found.end()) {
      return {ErrorKind::kData, StrCat(path, ": no tensor '", entry.name, "' ",
                                       ToString(entry.shape), " among ", file.tensors.size())};
    }
    std::ranges::copy(tensor->second->values,
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
