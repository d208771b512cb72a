// Simplify: makes a recorded graph cheaper without changing what it computes:
//   1. a node and its only user become one where the function can (ReLU into a product);
//   2. nodes that nobody needs are dropped: needed are parameter gradients and outputs.
#pragma once

#include "daemon/autograd/graph.h"

namespace gaccd {

void Simplify(Graph& graph);

}  // namespace gaccd
