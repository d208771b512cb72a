// Which tensor of a batch each input of a graph is, found once by name so that nothing is looked up
// while training.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "daemon/autograd/graph.h"
#include "daemon/nn/recorder.h"
#include "daemon/tensor/sample.h"

namespace gaccd {

struct BoundInput {
  enum class From { kTensor, kSampleIds, kUpdate, kPosition };

  ValueId value;
  From from = From::kTensor;
  std::size_t tensor = 0;  // of the batch, in the order of the spec
};

// Where the inputs of a batch lie on a device: its tensors, the ids, the position. REQUIRES: not
// kUpdate.
[[nodiscard]] std::size_t PlaceOf(const BoundInput& input, const SampleSpec& sample);

// kInternal, naming it, for an input that the samples do not have.
Result<std::vector<BoundInput>> BindByName(std::span<const nn::GraphInput> inputs,
                                           const SampleSpec& sample);

}  // namespace gaccd
