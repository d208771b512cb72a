// PipelineStage: the part of a model that one rank of a pipeline has, and where the parts of the
// others are. A stage has neighbouring blocks of the model (nn::Recorder::EndBlock; what follows
// the last end is the last block), and the neighbouring parameters that only they use. The flat
// buffers have the elements of the whole model on every rank, so that an element has one number
// everywhere; a rank touches its own part alone, and so only that takes memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "daemon/autograd/stage.h"
#include "daemon/tensor/flat_layout.h"
#include "daemon/tensor/shard_layout.h"

namespace gaccd {

// A parameter that several stages use, as the embedding of tied output weights. The first of them
// owns it: it keeps the state, steps, and sends the values to the others. Frozen ones are only
// read.
struct SharedParameter {
  std::size_t parameter = 0;        // index of the layout
  std::vector<std::size_t> stages;  // ascending; the first one owns it
};

struct PipelineStage {
  std::size_t stage = 0;                // of this rank
  std::vector<std::int64_t> blocks;     // of each stage
  std::vector<ShardPart> parts;         // of each stage
  std::vector<SharedParameter> shared;  // not frozen
  std::vector<bool> uses;               // by parameter: this stage reads it
  bool divides_backward = false;        // gradients of weights are a segment of their own

  [[nodiscard]] std::size_t stages() const { return blocks.size(); }
  [[nodiscard]] bool first() const { return stage == 0; }
  [[nodiscard]] bool last() const { return stage + 1 == stages(); }
  [[nodiscard]] const ShardPart& own() const { return parts[stage]; }
};

// users: the parameters of each stage (ParametersOfStages()). One that none uses belongs to the
// stage of its neighbour before. kConfig where the parts would not be neighbours.
Result<PipelineStage> DivideParameters(const FlatLayout& layout,
                                       const std::vector<std::vector<std::size_t>>& users,
                                       std::vector<std::int64_t> blocks, std::size_t stage);

// Where the entries of the layout lie in buffers that have nothing else than what a stage uses, as
// those of a GPU, whose memory is taken whether it is used or not: the own part from element 0 on,
// then what it uses of others. Entries that it does not use lie at the end.
[[nodiscard]] FlatLayout PlacesOfStage(const FlatLayout& layout, const PipelineStage& stage);

}  // namespace gaccd
