// Passes that make a recorded graph cheaper without changing its results.
#pragma once

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

}  // namespace gaccd
