// Maps each input of a graph to a tensor of a batch, once by name, so that training needs no
// look-ups.
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
  std::size_t tensor = 0;  // index of the tensor in the spec
};

// Index of an input in a batch on a device: its tensors, then the ids, then the position. REQUIRES:
// not kUpdate.
[[nodiscard]] std::size_t InputIndex(const BoundInput& input, const SampleSpec& sample);

// kInternal, with the name, if the samples have no such input.
Result<std::vector<BoundInput>> BindByName(std::span<const nn::GraphInput> inputs,
                                           const SampleSpec& sample);

}  // namespace gaccd
