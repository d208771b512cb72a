// PipelineStage: the part of a model on one rank of a pipeline, and the parts of the other ranks. A
// stage has consecutive blocks of the model (nn::Recorder::EndBlock; everything after the last end
// is the last block), and the consecutive parameters that only they use. On a CPU the flat buffers
// have the elements of the whole model on every rank, so that element numbers are the same
// everywhere; a rank touches only its own part, so only that part takes memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "daemon/autograd/stage.h"
#include "daemon/tensor/flat_layout.h"
#include "daemon/tensor/shard_layout.h"

namespace gaccd {

// A parameter that several stages use, for example the embedding of tied output weights. The first
// of them owns it: it keeps the optimiser state, steps, and sends the values to the others. Frozen
// parameters are only read; one stored after those of a later stage belongs to that stage.
struct SharedParameter {
  std::size_t parameter = 0;        // index in the layout
  std::vector<std::size_t> stages;  // ascending; the first is the owner
};

struct PipelineStage {
  std::size_t stage = 0;                // of this rank
  std::vector<std::int64_t> blocks;     // by stage
  std::vector<ShardPart> parts;         // by stage
  std::vector<SharedParameter> shared;  // without frozen parameters
  std::vector<bool> uses;               // by parameter: this stage reads it
  bool divides_backward = false;        // gradients of weights are a separate segment

  [[nodiscard]] std::size_t stages() const { return blocks.size(); }
  [[nodiscard]] bool last() const { return stage + 1 == stages(); }
  [[nodiscard]] const ShardPart& own() const { return parts[stage]; }
  [[nodiscard]] bool owns(const FlatEntry& entry) const {
    return entry.offset >= own().first && entry.offset < own().first + own().elements;
  }
};

// users: the parameters of each stage (FindStageParameters()). A parameter that no stage uses
// belongs to the stage of the parameter before it. kConfig if the parts would not be contiguous.
Result<PipelineStage> DivideParameters(const FlatLayout& layout, const StageUsers& users,
                                       std::vector<std::int64_t> blocks, std::size_t stage);

// A layout for buffers that contain only what a stage uses, as on a GPU, where unused memory is
// allocated too: the own part from element 0 on, then the used parameters of other stages. Unused
// entries are at the end.
[[nodiscard]] FlatLayout StagePlaces(const FlatLayout& layout, const PipelineStage& stage);

}  // namespace gaccd
