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

// The functions of images in small graphs, for tests of their gradients on every device.

// `rows` is the number of images, 2 `in` the channels, 2 `out` those of a result.
[[nodiscard]] std::span<const GraphCase> ImageCases();
// Batch norms and what follows them. Near the corner of a relu there are no finite differences, and
// rounding moves values across it.
[[nodiscard]] std::span<const GraphCase> NormReluCases();

// The functions that exported networks are made of, besides layers, in small graphs: values of
// different shapes, their parts, and functions with numbers.
[[nodiscard]] std::span<const GraphCase> ShapeCases();

}  // namespace gaccd
