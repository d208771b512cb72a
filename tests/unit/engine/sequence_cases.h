// The functions of text models in small graphs, for tests of their gradients on every device.
#pragma once

#include <functional>
#include <span>

#include "tests/unit/engine/graph_bench.h"

namespace gaccd {

struct CaseSize {
  std::int64_t rows, in, out;
  DType dtype = DType::kF32;  // what the functions under test compute with
};

struct GraphCase {
  const char* name;
  std::function<ValueId(GraphBench&, const CaseSize&)> record;  // returns the objective
};

// `in` is the width, `out` the width of a head or the classes, `rows` the length of a sequence.
[[nodiscard]] std::span<const GraphCase> SequenceCases();

}  // namespace gaccd
