// Stages of a pipeline: what one rank runs of a recorded graph. The graph is cut where one value
// alone continues. A stage has the nodes between two cuts and the part of the backward that belongs
// to them; what it needs of its neighbours are inputs, what they need of it are outputs:
//
//   stage s - 1   --  received: cut value s - 1       -->   stage s
//                 <-- sent_gradient: its gradient     --
//
// The forward nodes come first, then a Turn, then the backward nodes: a stage runs in two segments
// (executor.h), between which other micro-batches may run. The last stage has no Turn and one
// segment. A divided backward has a second Turn: before it what `sent_gradient` needs, after it the
// gradients of weights, in a segment of their own. Forward values that depend on inputs alone, as a
// mask of positions, are computed in every stage that reads them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "daemon/autograd/function.h"

namespace gaccd {

// Looks at its input, the gradient that a stage received or sends. Here the backward of a stage
// begins, or its second part.
class Turn final : public Function {
 public:
  [[nodiscard]] std::string_view name() const override { return "turn"; }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override {
    return std::vector<ValueSpec>{inputs[0]};
  }
  [[nodiscard]] bool is_view() const override { return true; }
  [[nodiscard]] bool ends_segment() const override { return true; }
};

// Where a graph may be cut, in the order of the forward; its last nodes belong to the stage after
// the last cut.
struct StageCuts {
  std::vector<ValueId> values;
  // Of a graph with a backward: d objective / d value, and the objective's own gradient.
  std::vector<ValueId> gradients = {};
  std::optional<ValueId> seed = {};

  [[nodiscard]] std::size_t stages() const { return values.size() + 1; }
};

// What a stage exchanges with its neighbours. Empty: there is none on that side, or no backward.
struct StageEnds {
  std::optional<ValueId> received;           // input
  std::optional<ValueId> sent;               // output
  std::optional<ValueId> received_gradient;  // input
  std::optional<ValueId> sent_gradient;      // output
};

// By stage: the parameters (indices of the layout) that its nodes read or give a gradient of,
// ascending. kConfig where a value other than the cuts, made from parameters, is read in another
// stage than its own: a cut through a residual connection.
Result<std::vector<std::vector<std::size_t>>> ParametersOfStages(const Graph& graph,
                                                                 const StageCuts& cuts);

// `graph` becomes that of one stage. divide_backward: where it sends a gradient. Errors as above.
Result<StageEnds> CutStage(const StageCuts& cuts, std::size_t stage, Graph* graph,
                           bool divide_backward = false);

}  // namespace gaccd
