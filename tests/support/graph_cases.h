// Functions in small graphs, for tests of their gradients on every device: on the CPU against
// finite differences, on a GPU against the CPU.
#pragma once

#include <functional>
#include <span>

#include "tests/support/graph_bench.h"

namespace gaccd {

struct CaseSize {
  std::int64_t rows, in, out;
  DType dtype = DType::kF32;  // what the functions under test compute with
};

struct GraphCase {
  const char* name;
  std::function<ValueId(GraphBench&, const CaseSize&)> record;  // returns the objective
};

// Linear, ReLU and what moves values. What goes into a ReLU has its bias in "fc1.b", or none.
[[nodiscard]] std::span<const GraphCase> LayerCases();

// Of text models. `in` is the width, `out` the width of a head or the classes, `rows` the length of
// a sequence.
[[nodiscard]] std::span<const GraphCase> SequenceCases();

}  // namespace gaccd
