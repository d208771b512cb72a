#include "daemon/autograd/stage.h"

#include <algorithm>
#include <set>
#include <utility>

#include "collectives/base/strings.h"

namespace gaccd {
namespace {

class Cutter {
 public:
  Cutter(const Graph& graph, const StageCuts& cuts)
      : graph_(graph),
        cuts_(cuts),
        producer_(graph.values().size()),
        stage_(graph.nodes().size()),
        of_inputs_(graph.values().size()) {
    backward_ = graph.nodes().size();
    for (std::size_t i = 0; i < graph.nodes().size(); ++i) {
      const Node& node = graph.nodes()[i];
      for (const ValueId output : node.outputs) producer_[Index(output)] = i;
      if (cuts.seed && std::ranges::count(node.inputs, *cuts.seed) > 0) {
        backward_ = std::min(backward_, i);
      }
    }
    AssignForward();
    AssignBackward();
  }

  [[nodiscard]] std::size_t backward() const { return backward_; }
  [[nodiscard]] std::size_t producer(ValueId value) const { return *producer_[Index(value)]; }

  // By node: whether the stage runs it.
  Result<std::vector<bool>> StageNodes(std::size_t stage) const {
    std::vector<bool> runs(stage_.size());
    for (std::size_t i = stage_.size(); i-- > 0;) {
      if (stage_[i] == stage) runs[i] = true;
      if (!runs[i]) continue;
      for (const ValueId input : graph_.nodes()[i].inputs) {
        const auto from = producer_[Index(input)];
        if (!from || stage_[*from] == stage || IsReceived(input, stage)) continue;
        // The stage computes its own copy.
        if (!of_inputs_[Index(input)]) return Refuse(input, stage_[*from], stage);
        runs[*from] = true;
      }
    }
    return runs;
  }

 private:
  [[nodiscard]] bool IsReceived(ValueId value, std::size_t stage) const {
    if (stage > 0 && value == cuts_.values[stage - 1]) return true;
    return stage < cuts_.gradients.size() && value == cuts_.gradients[stage];
  }

  void AssignForward() {
    for (std::size_t i = 0; i < backward_; ++i) {
      const Node& node = graph_.nodes()[i];
      const auto ends_before = [&](ValueId cut) { return producer(cut) < i; };
      stage_[i] = static_cast<std::size_t>(std::ranges::count_if(cuts_.values, ends_before));
      // Inputs, constants and frozen parameters need no gradient.
      const bool of_inputs = std::ranges::all_of(node.inputs, [this](ValueId input) {
        return producer_[Index(input)] ? bool{of_inputs_[Index(input)]}
                                       : !graph_.value(input).needs_gradient;
      });
      for (const ValueId output : node.outputs) of_inputs_[Index(output)] = of_inputs;
    }
  }

  // The backward visits the forward nodes in reverse, so stage numbers decrease. A node that reads
  // the received gradient of a later stage, or another value of it, belongs to that stage: a
  // function may record the gradient of the cut value before that of a parameter.
  void AssignBackward() {
    for (std::size_t i = backward_; i < graph_.nodes().size(); ++i) {
      const auto comes_after = [&](ValueId gradient) { return i <= producer(gradient); };
      std::size_t stage =
          static_cast<std::size_t>(std::ranges::count_if(cuts_.gradients, comes_after));
      for (const ValueId input : graph_.nodes()[i].inputs) {
        const auto from = producer_[Index(input)];
        const auto cut = std::ranges::find(cuts_.gradients, input);
        if (cut != cuts_.gradients.end()) {
          stage = std::max(stage, static_cast<std::size_t>(cut - cuts_.gradients.begin()));
        } else if (from && !of_inputs_[Index(input)]) {
          stage = std::max(stage, stage_[*from]);
        }
      }
      stage_[i] = stage;
    }
  }

  Status Refuse(ValueId value, std::size_t from, std::size_t to) const {
    return {ErrorKind::kConfig,
            StrCat("pipeline: expected one value alone from stage to stage; stage ", to,
                   " (from 0) also needs '", graph_.value(value).name, "' ",
                   ToString(graph_.value(value).spec.shape), " of stage ", from,
                   ": the model cannot be cut there")};
  }

  const Graph& graph_;
  const StageCuts& cuts_;
  std::size_t backward_;                              // index of its first node
  std::vector<std::optional<std::size_t>> producer_;  // by value: the node
  std::vector<std::size_t> stage_;                    // by node
  std::vector<bool> of_inputs_;                       // by value: it depends on nothing trained
};

// Moves the nodes from `begin` on that `sent` does not need to the end, after a SegmentBoundary,
// whose value is sent instead.
std::vector<Node> DivideBackward(std::vector<Node> nodes, std::size_t begin, ValueId* sent,
                                 Graph* graph) {
  std::vector<bool> needed(graph->values().size());
  needed[Index(*sent)] = true;
  std::vector<bool> later(nodes.size());
  for (std::size_t i = nodes.size(); i-- > begin;) {
    const auto is_needed = [&](ValueId value) { return bool{needed[Index(value)]}; };
    later[i] = std::ranges::none_of(nodes[i].outputs, is_needed);
    if (later[i]) continue;
    for (const ValueId input : nodes[i].inputs) needed[Index(input)] = true;
  }
  std::vector<Node> divided;
  for (const bool part : {false, true}) {
    if (part) {
      const ValueId end = graph->AddActivationLike(*sent);
      divided.push_back({std::make_shared<SegmentBoundary>(), {*sent}, {end}});
      *sent = end;
    }
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      if (later[i] == part) divided.push_back(std::move(nodes[i]));
    }
  }
  return divided;
}

bool IsParameterOrGradient(const Value& value) {
  return value.kind == ValueKind::kParameter || value.kind == ValueKind::kParameterGradient;
}

}  // namespace

Result<StageUsers> FindStageParameters(const Graph& graph, const StageCuts& cuts) {
  const Cutter cutter(graph, cuts);
  StageUsers parameters;
  for (std::size_t stage = 0; stage < cuts.stages(); ++stage) {
    GACCD_ASSIGN_OR_RETURN(const std::vector<bool> runs, cutter.StageNodes(stage));
    std::set<std::size_t> used;
    const auto add = [&](ValueId id) {
      if (IsParameterOrGradient(graph.value(id))) used.insert(graph.value(id).parameter);
    };
    for (std::size_t i = 0; i < runs.size(); ++i) {
      if (!runs[i]) continue;
      std::ranges::for_each(graph.nodes()[i].inputs, add);
      std::ranges::for_each(graph.nodes()[i].outputs, add);
    }
    parameters.emplace_back(used.begin(), used.end());
  }
  return parameters;
}

Result<StageEnds> CutStage(const StageCuts& cuts, std::size_t stage, Graph* graph,
                           bool divide_backward) {
  std::vector<bool> runs;
  std::size_t backward = 0;
  {
    const Cutter cutter(*graph, cuts);
    GACCD_ASSIGN_OR_RETURN(runs, cutter.StageNodes(stage));
    backward = cutter.backward();
  }
  StageEnds ends;
  std::vector<std::pair<ValueId, ValueId>> replaced;
  std::vector<Node> nodes;
  const auto input_like = [graph](const char* name, ValueId value) {
    const ValueSpec spec = graph->value(value).spec;
    return graph->AddInput(name, spec);
  };
  if (stage > 0) {
    ends.received = input_like("received", cuts.values[stage - 1]);
    replaced.emplace_back(cuts.values[stage - 1], *ends.received);
    if (cuts.seed) ends.sent_gradient = cuts.gradients[stage - 1];
  }
  Node turn;
  if (stage < cuts.values.size()) {
    ends.sent = cuts.values[stage];
    if (cuts.seed) {
      const ValueId gradient = cuts.gradients[stage];
      ends.received_gradient = input_like("received gradient", gradient);
      const ValueId begin = graph->AddActivationLike(gradient);
      turn = {std::make_shared<SegmentBoundary>(), {*ends.received_gradient}, {begin}};
      replaced.emplace_back(gradient, begin);
    }
  }
  std::size_t begin_of_backward = 0;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (i == backward) begin_of_backward = nodes.size();
    if (i == backward && turn.function) nodes.push_back(turn);
    if (!runs[i]) continue;
    Node node = graph->nodes()[i];
    for (ValueId& input : node.inputs) {
      for (const auto& [of_neighbour, own] : replaced) {
        if (input == of_neighbour) input = own;
      }
    }
    nodes.push_back(std::move(node));
  }
  if (divide_backward && ends.sent_gradient) {
    nodes = DivideBackward(std::move(nodes), begin_of_backward, &*ends.sent_gradient, graph);
  }
  graph->ReplaceNodes(std::move(nodes));
  for (const auto& output : {ends.sent, ends.sent_gradient}) {
    if (output) graph->MarkOutput(*output);
  }
  return ends;
}

}  // namespace gaccd
