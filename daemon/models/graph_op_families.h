// The ops of graph_ops.h by family, one file each.
#pragma once

#include <string_view>
#include <vector>

#include "daemon/models/graph_ops.h"

namespace gaccd {

[[nodiscard]] std::vector<GraphOp> ValueOps();     // elementwise, and over the last dimension
[[nodiscard]] std::vector<GraphOp> ImageOps();     // also batch norm
[[nodiscard]] std::vector<GraphOp> SequenceOps();  // embeddings, attention
[[nodiscard]] std::vector<GraphOp> LayoutOps();
[[nodiscard]] std::vector<GraphOp> NumberOps();   // elementwise with constant numbers
[[nodiscard]] std::vector<GraphOp> ProductOps();  // of two values with broadcast, sums, matmul

// Rules for attributes.
[[nodiscard]] constexpr GraphAttributeRule Flag(std::string_view name) {
  return {.name = name, .most = 1};
}
[[nodiscard]] constexpr GraphAttributeRule Real(std::string_view name, double least, double most) {
  return {.name = name, .count = -1, .least = least, .most = most};
}
[[nodiscard]] constexpr GraphAttributeRule AnyIntegers(std::string_view name) {
  return {.name = name, .count = 0};
}
[[nodiscard]] constexpr GraphAttributeRule Epsilon() { return Real("eps", 1e-30, 1); }

}  // namespace gaccd
