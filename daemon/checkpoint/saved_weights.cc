#include "daemon/checkpoint/saved_weights.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>

#include "collectives/base/strings.h"
#include "daemon/checkpoint/load.h"
#include "daemon/checkpoint/saved_job.h"

namespace gaccd {
namespace {

Result<SavedWeights> ReadWeights(const std::string& folder, const Generation& generation) {
  GACCD_ASSIGN_OR_RETURN(Manifest manifest, ReadManifest(folder, generation));
  GACCD_ASSIGN_OR_RETURN(const std::vector<std::byte> bytes,
                         ReadBuffer(folder, generation, manifest, kParametersBuffer));
  const std::span<const float> values = AsFloats(bytes);
  GACCD_RETURN_IF_ERROR(CheckParametersFinite(manifest, values).WithContext(generation.name()));
  SavedWeights weights{.generation = generation, .manifest = {}, .tensors = {}, .passed_over = {}};
  for (const ParameterRecord& parameter : manifest.parameters) {
    const auto first = values.begin() + parameter.offset;
    weights.tensors.push_back(
        {parameter.name, parameter.shape, {first, first + Elements(parameter.shape)}});
  }
  weights.manifest = std::move(manifest);
  return weights;
}

}  // namespace

Result<SavedWeights> ReadSavedWeights(const GenerationPlace& place) {
  std::vector<std::string> passed_over;
  for (const Generation& one : place.generations) {
    if (!one.committed && !place.one) {
      passed_over.push_back(one.name() + ": unfinished");
      continue;
    }
    auto weights = ReadWeights(place.folder, one);
    if (weights.ok()) weights->passed_over = std::move(passed_over);
    if (weights.ok() || place.one) return weights;
    passed_over.push_back(StrCat(one.name(), ": ", weights.status().message()));
  }
  std::string why;
  for (const std::string& note : passed_over) why += "\n" + note;
  return Status(ErrorKind::kData,
                StrCat("'", place.folder, "' holds no checkpoint that is intact", why));
}

}  // namespace gaccd
