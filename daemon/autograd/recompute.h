// Activation checkpointing (Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost"): a
// pass that lets blocks of the forward run a second time in the backward, so that what they make
// need not be kept in between. The second run has the same functions of the same values, so the
// same bits: dropout is a function of the sample and its layer. It is to be called last, on the
// graph that a device runs, so that both runs are the same kernels.
//
// A block is the nodes between two ends. Before the first node of the backward that reads something
// of a block, copies are put of those of its nodes that the backward needs. Not copied is what is
// known or must not happen twice, and its outputs are kept: what another block or the loss reads,
// outputs of the graph, sums over the update or over ranks, and what adds to the gradients, as
// running statistics do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "daemon/autograd/graph.h"

namespace gaccd {

// The nodes after which a block ends, ascending: where `ends` are made, without those that are
// inputs or that another pass has removed. What follows the last one is no block: its backward
// comes next. seed: the input that the backward begins with (RecordGradients).
[[nodiscard]] std::vector<std::size_t> FindBlocks(const Graph& graph, std::span<const ValueId> ends,
                                                  ValueId seed);

// Blocks of every c-th end, counted from the last one: with the c that needs the least memory
// (PlanMemory) for an update of so many micro-steps. kConfig where there is no block.
Status RecomputeBlocks(std::span<const ValueId> ends, ValueId seed, std::int64_t micro_steps,
                       Graph* graph);

}  // namespace gaccd
