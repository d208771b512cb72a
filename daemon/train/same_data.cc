#include "daemon/train/same_data.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "collectives/base/hex.h"
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
  BatchMemory batch(spec, samples);
  data.Gather(places, batch.view());
  std::vector<float> words;  // the bits of all tensors, one behind the other
  for (std::size_t i = 0; i < spec.tensors.size(); ++i) {
    const std::span<const std::byte> bytes = batch.bytes(i);
    const std::size_t first = words.size();
    words.resize(first + (bytes.size() + sizeof(float) - 1) / sizeof(float));
    std::memcpy(words.data() + first, bytes.data(), bytes.size());
  }
  return DigestOf(words);
}

std::string TextOf(const Dataset& data) {
  // What may be cut off stands last.
  return StrCat(data.size(), " samples, content ", Hex(ContentOf(data)), ", of ",
                Describe(data.spec()));
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
