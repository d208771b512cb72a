// What makes a recorded graph cheaper without changing what it computes.
#pragma once

#include "daemon/autograd/graph.h"

namespace gaccd {

// Drops nodes that nobody needs: needed are parameter gradients and outputs.
void DropUnused(Graph& graph);

// DropUnused(), then a node and its only user become one where the function can (ReLU into a
// product).
void Simplify(Graph& graph);

}  // namespace gaccd
