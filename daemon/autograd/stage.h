// Pipeline stages: the part of a recorded graph that one rank runs. The graph is cut where only one
// value crosses. A stage has the nodes between two cuts and the corresponding backward nodes;
// values from its neighbours are inputs, values for them are outputs:
//
//   stage s - 1   --  received: cut value s - 1       -->   stage s
//                 <-- sent_gradient: its gradient     --
//
// The forward nodes come first, then a SegmentBoundary, then the backward nodes: a stage runs in
// two segments (executor.h), between which other micro-batches may run. The last stage has no
// SegmentBoundary and one segment. A divided backward has a second SegmentBoundary: the nodes that
// `sent_gradient` needs come before it, the gradients of weights after it, in a separate segment.
// Forward values that depend on inputs, constants and frozen parameters only, such as a mask, are
// computed in every stage that reads them.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "daemon/autograd/function.h"

namespace gaccd {

// Separates segments: its input is the gradient that a stage received or sends. The backward of a
// stage, or its second part, begins here.
class SegmentBoundary final : public Function {
 public:
  [[nodiscard]] std::string_view name() const override { return "segment_boundary"; }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override {
    return std::vector<ValueSpec>{inputs[0]};
  }
  [[nodiscard]] bool is_view() const override { return true; }
  [[nodiscard]] bool ends_segment() const override { return true; }
};

// Cut points of a graph, in forward order. The nodes after the last cut belong to the last stage.
struct StageCuts {
  std::vector<ValueId> values;
  // For a graph with a backward: d objective / d value, and the gradient of the objective itself.
  std::vector<ValueId> gradients = {};
  std::optional<ValueId> seed = {};

  [[nodiscard]] std::size_t stages() const { return values.size() + 1; }
};

// Messages of a stage. Empty: no neighbour on that side, or no backward.
struct StageEnds {
  std::optional<ValueId> received;           // input
  std::optional<ValueId> sent;               // output
  std::optional<ValueId> received_gradient;  // input
  std::optional<ValueId> sent_gradient;      // output
};

// By stage: the parameters (indices in the layout) that it uses, ascending.
using StageUsers = std::vector<std::vector<std::size_t>>;

// Those that the nodes of a stage read or compute a gradient for. kConfig if a value other than a
// cut, computed from trained parameters, is read in another stage: the cut crosses a residual
// connection.
Result<StageUsers> FindStageParameters(const Graph& graph, const StageCuts& cuts);

// Reduces `graph` to one stage. divide_backward: if the stage sends a gradient. Errors as above.
Result<StageEnds> CutStage(const StageCuts& cuts, std::size_t stage, Graph* graph,
                           bool divide_backward = false);

}  // namespace gaccd
