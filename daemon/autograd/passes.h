// Passes that make a recorded graph cheaper without changing its results.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "daemon/autograd/graph.h"

namespace gaccd {

// Removes nodes whose outputs are not needed; parameter gradients and outputs are needed.
void DropUnused(Graph& graph);

// DropUnused(), then merges nodes with their only user if the functions can be folded (ReLU into a
// matrix product).
void Simplify(Graph& graph);

// For a graph of a batch without samples: replaces every node that has an operand without elements
// by zeros, as it would sum over nothing. Collectives remain, as every rank runs them; a state
// keeps its content. Call this last: nodes that other ranks need may have no user on this one.
void ReplaceEmptyNodes(Graph& graph);

[[nodiscard]] bool HasCollectives(const Graph& graph);
// Number of nodes that sum over an update.
[[nodiscard]] std::size_t CountUpdateSums(const Graph& graph);

// Activation checkpointing (Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost"):
// runs blocks of the forward a second time in the backward, so that their values need not be kept
// in between. The second run applies the same functions to the same values, so it is bit-identical:
// dropout depends only on the sample and the layer. Call this pass last, on the graph that the
// device runs, so that both runs use the same kernels.
//
// A block is the nodes between two ends. Copies of those nodes of a block that the backward needs
// are inserted before the first backward node that reads a value of the block. Some nodes are not
// copied, and their outputs are kept: values that another block or the loss reads, outputs of the
// graph, sums over the update or over ranks, and nodes that add to gradients, such as running
// statistics.

// The nodes after which a block ends, ascending: the nodes that compute `ends`, except inputs and
// values that another pass has removed. The nodes after the last end are not a block, as their
// backward comes next. seed: the input at which the backward begins (RecordGradients).
[[nodiscard]] std::vector<std::size_t> FindBlocks(const Graph& graph, std::span<const ValueId> ends,
                                                  ValueId seed);

// Recomputes blocks that end at every c-th end, counted from the last; c is the one that needs the
// least memory (PlanMemory) for an update of `micro_steps` micro-steps. kConfig if there is no
// block.
Status RecomputeBlocks(std::span<const ValueId> ends, ValueId seed, std::int64_t micro_steps,
                       Graph* graph);

}  // namespace gaccd
