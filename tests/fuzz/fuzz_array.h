// Uses an array that a reader has accepted, so that a wrong shape or size is read out of bounds.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "daemon/data/formats/array.h"
#include "daemon/data/formats/tokens.h"
#include "tests/fuzz/fuzz_check.h"

namespace gaccd {

// Reads the first and the last sample.
inline void ReadEnds(const Dataset& dataset) {
  const SampleSpec& spec = dataset.spec();
  BatchMemory batch(spec, 2);
  const std::int64_t indices[] = {0, dataset.size() - 1};
  dataset.Gather(indices, batch.view());
  for (std::size_t t = 0; t < spec.tensors.size(); ++t) {
    if (spec.tensors[t].name != "labels") continue;
    const bool ids = !spec.tensors[t].shape.empty();  // there may be none at a place
    const auto* labels = batch.view().tensor<std::int32_t>(t);
    for (std::int64_t i = 0; i < 2 * spec.tensors[t].elements(); ++i) {
      FuzzCheck((labels[i] >= 0 && labels[i] < spec.classes) || (ids && labels[i] == -100),
                "labels are in [0, classes)");
    }
  }
}

inline Array ZeroBytes(std::int64_t samples, std::vector<std::int64_t> shape) {
  const auto bytes = static_cast<std::size_t>(samples);
  Array array;
  array.name = "zeros";
  array.shape = std::move(shape);
  const std::shared_ptr<std::byte[]> memory(new std::byte[bytes]());
  array.data = {memory.get(), bytes};
  array.owner = memory;
  return array;
}

// As features with labels, as labels of 10 classes, as vectors, and as tokens.
inline void UseArray(const Array& array) {
  auto bytes = static_cast<double>(SizeOf(array.type));  // cannot wrap around
  for (const std::int64_t size : array.shape) bytes *= static_cast<double>(size);
  FuzzCheck(bytes == static_cast<double>(array.data.size()),
            "the data is as long as the shape says");
  if (array.shape.empty() || array.data.empty()) return;
  const std::int64_t samples = array.shape[0];
  const auto use = [](Result<std::unique_ptr<Dataset>> dataset) {
    if (dataset.ok()) ReadEnds(**dataset);
  };
  use(MakeArrayDataset(array, ZeroBytes(samples, {samples}), 10, {}));
  use(MakeArrayDataset(ZeroBytes(samples, {samples, 1}), array, 10, {}));
  use(MakeArrayDataset(ZeroBytes(samples, {samples, 1}), array, 0, {}));
  use(MakeStreamDataset(array, 3, 10));
  use(MakeTokenDataset({.tokens = array, .labels = array}, {.vocabulary = 10}));
  use(MakeTokenDataset({.tokens = ZeroBytes(samples, {samples, 1}), .lengths = array},
                       {.vocabulary = 10}));
}

}  // namespace gaccd
