#include "daemon/replica/graph_inputs.h"

#include "collectives/base/strings.h"

namespace gaccd {

std::size_t InputIndex(const BoundInput& input, const SampleSpec& sample) {
  if (input.from == BoundInput::From::kTensor) return input.tensor;
  return sample.tensors.size() + (input.from == BoundInput::From::kPosition ? 1 : 0);
}

Result<std::vector<BoundInput>> BindByName(std::span<const nn::GraphInput> inputs,
                                           const SampleSpec& sample) {
  std::vector<BoundInput> bound;
  for (const nn::GraphInput& input : inputs) {
    BoundInput next{.value = input.value};
    if (input.name == nn::kSampleIds) {
      next.from = BoundInput::From::kSampleIds;
    } else if (input.name == nn::kUpdate) {
      next.from = BoundInput::From::kUpdate;
    } else if (input.name == nn::kPosition) {
      next.from = BoundInput::From::kPosition;
    } else {
      const TensorSpec* tensor = sample.Find(input.name);
      if (tensor == nullptr) {
        return Status(ErrorKind::kInternal,
                      StrCat("no tensor for the graph's input '", input.name, "'"));
      }
      next.tensor = static_cast<std::size_t>(tensor - sample.tensors.data());
    }
    bound.push_back(next);
  }
  return bound;
}

}  // namespace gaccd
