// What makes a recorded graph cheaper without changing what it computes.
#pragma once

#include "daemon/autograd/graph.h"

namespace gaccd {

// Drops nodes that nobody needs: needed are parameter gradients and outputs.
void DropUnused(Graph& graph);

// DropUnused(), then a node and its only user become one where the function can (ReLU into a
// product).
void Simplify(Graph& graph);

// For a graph of a batch without samples: no node that has an operand without elements is left,
// but for collective ones, which every rank runs. What such a node would write are sums over
// nothing: zeros; a state keeps its content. To be called last: nodes that other ranks need may
// have no user on this one.
void ReplaceEmptyNodes(Graph& graph);

[[nodiscard]] bool HasCollectives(const Graph& graph);
// Nodes that sum over an update.
[[nodiscard]] std::size_t CountUpdateSums(const Graph& graph);

}  // namespace gaccd
