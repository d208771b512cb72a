#include "daemon/train/same_data.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "collectives/base/strings.h"
#include "collectives/bootstrap/same_on_all.h"
#include "daemon/optim/digest.h"

namespace gaccd {
namespace {

constexpr std::int64_t kSamplesCompared = 16;

// Of the same places in all copies, whatever they hold.
std::uint64_t ContentOf(const Dataset& data) {
  const SampleSpec& spec = data.spec();
  const std::int64_t samples = std::min(kSamplesCompared, data.size());
  std::vector<std::int64_t> places;
  for (std::int64_t i = 0; i < samples; ++i) {
    places.push_back(samples == 1 ? 0 : i * (data.size() - 1) / (samples - 1));
  }
  std::vector<float> values(static_cast<std::size_t>(samples * spec.feature_elements()));
  std::vector<float> targets(static_cast<std::size_t>(samples * spec.target_width));
  std::vector<std::int32_t> labels(static_cast<std::size_t>(spec.classes > 0 ? samples : 0));
  data.Gather(places, {.samples = samples,
                       .features = values.data(),
                       .labels = labels.data(),
                       .targets = targets.data()});
  values.insert(values.end(), targets.begin(), targets.end());
  for (const std::int32_t label : labels) values.push_back(static_cast<float>(label));
  return DigestOf(values);
}

std::string TextOf(const Dataset& data) {
  const SampleSpec& spec = data.spec();
  // What may be cut off stands last.
  return StrCat(data.size(), " samples, content ", DigestText(ContentOf(data)), ", of ",
                ToString(spec.feature_shape),
                spec.classes > 0 ? StrCat(", ", spec.classes, " classes")
                                 : StrCat(", targets of ", spec.target_width));
}

Status Check(Communicator& comm, std::string_view what, const Dataset& data) {
  return CheckSameOnAllRanks(comm, what, TextOf(data).substr(0, kDigestBytes));
}

}  // namespace

Status CheckSameData(Communicator& comm, const Dataset& train, const Dataset* eval) {
  GACCD_RETURN_IF_ERROR(Check(comm, "training data", train));
  return eval == nullptr ? Status::Ok() : Check(comm, "evaluation data", *eval);
}

}  // namespace gaccd
