#include "daemon/autograd/executor.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "collectives/base/strings.h"
#include "daemon/autograd/function.h"

namespace gaccd {
namespace {

std::vector<ValueSpec> ValueSpecs(const Graph& graph, const std::vector<ValueId>& ids) {
  std::vector<ValueSpec> specs;
  for (const ValueId id : ids) specs.push_back(graph.value(id).spec);
  return specs;
}

// Functions infer dense rows: strides are not part of it.
std::vector<ValueSpec> DenseSpecs(const Graph& graph, const std::vector<ValueId>& ids) {
  std::vector<ValueSpec> specs = ValueSpecs(graph, ids);
  for (ValueSpec& spec : specs) spec.row_stride = 0;
  return specs;
}

// Kernels rely on the sizes of their operands, and passes replace nodes.
Status CheckOperands(const Graph& graph, const Node& node) {
  const auto inferred = node.function->Infer(DenseSpecs(graph, node.inputs));
  if (!inferred.ok()) {
    return {ErrorKind::kInternal, StrCat(node.function->name(), ": ", inferred.status().message())};
  }
  if (*inferred != DenseSpecs(graph, node.outputs)) {
    return {ErrorKind::kInternal,
            StrCat(node.function->name(), ": its outputs are not those that it infers")};
  }
  if (node.outputs.size() <= kMaxOutputs) return Status::Ok();
  return {ErrorKind::kInternal, StrCat(node.function->name(), ": expected at most ", kMaxOutputs,
                                       " outputs, found ", node.outputs.size())};
}

}  // namespace

Executor::Executor(Graph graph, const FlatBuffers& buffers, std::int64_t micro_steps)
    : graph_(std::move(graph)),
      buffers_(buffers),
      plan_(PlanMemory(graph_, micro_steps)),
      slots_(graph_.values().size()) {}

Result<std::unique_ptr<Executor>> Executor::Prepare(Graph graph, const FlatBuffers& buffers,
                                                    KernelFactory& factory,
                                                    std::int64_t micro_steps) {
  std::unique_ptr<Executor> executor(new Executor(std::move(graph), buffers, micro_steps));
  for (std::size_t v = 0; v < executor->slots_.size(); ++v) {
    const Value& value = executor->graph_.values()[v];
    float* base = nullptr;
    if (value.kind == ValueKind::kParameterGradient) {
      base = buffers.gradients;
    } else if (value.kind == ValueKind::kParameter) {
      base = buffers.parameters;
    } else {
      continue;
    }
    if (base == nullptr) {
      return Status(ErrorKind::kInternal, StrCat("no flat buffer for '", value.name, "'"));
    }
    executor->slots_[v] = base + buffers.layout->entries()[value.parameter].offset;
  }
  GACCD_RETURN_IF_ERROR(executor->MakeSteps(factory));
  return executor;
}

Status Executor::MakeSteps(KernelFactory& factory) {
  std::vector<bool> written(buffers_.layout->entries().size());
  for (const Node& node : graph_.nodes()) {
    if (node.function->ends_segment()) {
      cuts_.push_back({steps_.size(), steps_.size()});
      ++segment_ends_;
      if (node.function->is_update_sum()) update_sums_.push_back(node);
    }
    if (node.function->is_view() || node.function->is_update_sum()) continue;
    GACCD_RETURN_IF_ERROR(AddStep(node, factory, written));
  }
  if (segment_ends_ > 0 && segment_ends_ < cuts_.size()) {
    return {ErrorKind::kConfig, "a graph cannot have both segments and collective operations"};
  }
  // Backwards: the first step found is the last one that writes.
  std::vector<bool> complete(written.size());
  for (std::size_t s = steps_.size(); s-- > 0;) {
    std::ranges::copy_if(steps_[s].writes, std::back_inserter(steps_[s].completes),
                         [&](std::size_t parameter) { return !complete[parameter]; });
    for (const std::size_t parameter : steps_[s].completes) complete[parameter] = true;
  }
  return Status::Ok();
}

Status Executor::AddStep(const Node& node, KernelFactory& factory, std::vector<bool>& written) {
  GACCD_RETURN_IF_ERROR(CheckOperands(graph_, node));
  Step step;
  const std::vector<ValueSpec> inputs = ValueSpecs(graph_, node.inputs);
  const std::vector<ValueSpec> outputs = ValueSpecs(graph_, node.outputs);
  std::vector<const float*> parameters;
  for (const ValueId id : node.inputs) {
    const Value& value = graph_.value(id);
    parameters.push_back(value.kind == ValueKind::kParameter
                             ? static_cast<const float*>(slots_[Index(id)])
                             : nullptr);
    step.inputs.push_back(Index(plan_.storage[Index(id)]));
  }
  for (const ValueId id : node.outputs) {
    const Value& value = graph_.value(id);
    step.outputs.push_back(Index(plan_.storage[Index(id)]));
    if (value.kind != ValueKind::kParameterGradient) continue;
    const std::size_t output = step.outputs.size() - 1;
    step.gradients.set(output);
    step.adds_always.set(output, written[value.parameter]);
    written[value.parameter] = true;
    step.writes.push_back(value.parameter);
  }
  GACCD_ASSIGN_OR_RETURN(step.kernel, factory.Make({*node.function, inputs, outputs, parameters}));
  scratch_bytes_ = std::max(scratch_bytes_, step.kernel->scratch_bytes());
  if (node.function->is_collective()) cuts_.push_back({steps_.size(), steps_.size() + 1});
  steps_.push_back(std::move(step));
  return Status::Ok();
}

void Executor::Attach(void* arena, void* scratch, void* kept) {
  scratch_ = scratch;
  for (std::size_t v = 0; v < slots_.size(); ++v) {
    if (plan_.offset[v] == MemoryPlan::kNone) continue;
    slots_[v] = static_cast<std::byte*>(plan_.kept[v] ? kept : arena) + plan_.offset[v];
  }
  // Views of planned values and of inputs use the memory of their storage.
  for (std::size_t v = 0; v < slots_.size(); ++v) slots_[v] = slots_[Index(plan_.storage[v])];
  for (Step& step : steps_) BindStep(step);
}

void Executor::BindStep(Step& step) {
  operand_scratch_.clear();
  for (const std::size_t slot : step.inputs) operand_scratch_.push_back(slots_[slot]);
  for (const std::size_t slot : step.outputs) operand_scratch_.push_back(slots_[slot]);
  const std::span<void* const> all(operand_scratch_);
  step.kernel->Bind({all.first(step.inputs.size()), all.subspan(step.inputs.size()), scratch_});
}

void Executor::BindInput(ValueId input, const void* data) {
  const std::size_t slot = Index(input);
  if (slots_[slot] == data) return;
  slots_[slot] = const_cast<void*>(data);  // kernels only read their inputs
  for (Step& step : steps_) {
    if (std::find(step.inputs.begin(), step.inputs.end(), slot) != step.inputs.end()) {
      BindStep(step);
    }
  }
}

Status Executor::Run(bool first, const Ready& ready) {
  if (segment_ends_ > 0) {
    return {ErrorKind::kInternal, "a graph with cuts runs segment by segment, found one run"};
  }
  return RunSteps(0, steps_.size(), first, ready);
}

std::pair<std::size_t, std::size_t> Executor::StepsOf(std::size_t segment) const {
  return {segment == 0 ? 0 : cuts_[segment - 1].next,
          segment < cuts_.size() ? cuts_[segment].end : steps_.size()};
}

Status Executor::RunSegment(std::size_t segment, bool first, const Ready& ready) {
  const auto [begin, end] = StepsOf(segment);
  return RunSteps(begin, end, first, ready);
}

void Executor::ForEachGradient(std::size_t segment,
                               const std::function<void(std::size_t)>& use) const {
  const auto [begin, end] = StepsOf(segment);
  for (std::size_t s = begin; s < end; ++s) std::ranges::for_each(steps_[s].writes, use);
}

// No collective function can_accumulate(), so none writes a parameter gradient itself.
Status Executor::RunCollective(std::size_t collective) {
  return steps_[cuts_[collective].end].kernel->Run({});
}

Executor::UpdateSumPlace Executor::update_sum(std::size_t sum) const {
  const Node& node = update_sums_[sum];
  const auto memory = [this](ValueId id) {
    return static_cast<double*>(slots_[Index(plan_.storage[Index(id)])]);
  };
  return {.own = memory(node.inputs[0]),
          .all = memory(node.outputs[0]),
          .elements = static_cast<std::size_t>(Elements(graph_.value(node.outputs[0]).spec.shape))};
}

std::size_t Executor::FindUpdateSum(ValueId all) const {
  const auto found =
      std::ranges::find(update_sums_, all, [](const Node& node) { return node.outputs[0]; });
  return static_cast<std::size_t>(found - update_sums_.begin());
}

Status Executor::RunSteps(std::size_t begin, std::size_t end, bool first, const Ready& ready) {
  for (std::size_t s = begin; s < end; ++s) {
    Step& step = steps_[s];
    GACCD_RETURN_IF_ERROR(step.kernel->Run(first ? step.adds_always : step.gradients));
    if (!ready) continue;
    for (const std::size_t parameter : step.completes) GACCD_RETURN_IF_ERROR(ready(parameter));
  }
  return Status::Ok();
}

}  // namespace gaccd
