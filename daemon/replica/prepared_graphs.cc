#include "daemon/replica/prepared_graphs.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <type_traits>
#include <utility>

#include "collectives/base/strings.h"
#include "daemon/autograd/function.h"
#include "daemon/autograd/memory_plan.h"
#include "daemon/autograd/passes.h"

namespace gaccd {

namespace {

std::set<BatchSize> WholeAndCut(const std::set<std::int64_t>& samples, const SampleSpec& spec) {
  std::set<BatchSize> sizes;
  for (const std::int64_t count : samples) {
    sizes.insert({count});
    for (const std::int64_t length : spec.cuts) sizes.insert({count, length});
  }
  return sizes;
}

}  // namespace

Status PreparedGraphs::NotPrepared(BatchSize size) {
  return {ErrorKind::kInternal,
          StrCat("no executor was prepared for ", size.samples, " samples",
                 size.length > 0 ? StrCat(" of ", size.length, " tokens") : "")};
}

Status PreparedGraphs::Record(const Model& model, const ReplicaOptions& options,
                              Precision precision, const Rewrite& rewrite) {
  micro_steps_ = model.stage() ? options.in_flight : options.micro_steps_per_update;
  std::set<BatchSize> training = WholeAndCut(options.micro_batches, model.sample());
  if (model.has_collectives()) training.insert(BatchSize{});
  // A rank without samples needs a graph too, from which it knows the statistics of the update.
  if (!model.running_statistics().empty() && training.empty() && options.effective_batch > 0) {
    training.insert(BatchSize{1});
  }
  for (const BatchSize size : training) {
    GACCD_RETURN_IF_ERROR(Add(model, size,
                              model.RecordTraining(size, precision, options.effective_batch),
                              rewrite, options.recompute));
    if (!model.contrastive() || size.samples == 0) continue;
    GACCD_RETURN_IF_ERROR(Add(model, size, model.RecordEncoding(size, precision), rewrite));
  }
  for (const BatchSize size : WholeAndCut(options.eval_batches, model.sample())) {
    GACCD_RETURN_IF_ERROR(Add(model, size, model.RecordEvaluation(size, precision), rewrite));
  }
  return Status::Ok();
}

template <typename Ids>
Status PreparedGraphs::Add(const Model& model, BatchSize size, Result<Ids> recorded,
                           const Rewrite& rewrite, Recompute recompute) {
  GACCD_ASSIGN_OR_RETURN(Ids ids, std::move(recorded));
  GACCD_RETURN_IF_ERROR(rewrite(ids.graph));
  if constexpr (std::is_same_v<Ids, TrainingGraph>) {
    if (recompute == Recompute::kBlocks && size.samples > 0) {
      GACCD_RETURN_IF_ERROR(RecomputeBlocks(ids.block_ends, ids.weight, micro_steps_, &ids.graph));
    }
  }
  GACCD_ASSIGN_OR_RETURN(auto inputs, BindByName(ids.inputs, model.sample()));
  all<Ids>().emplace(size, PreparedGraph<Ids>{std::move(ids), std::move(inputs), nullptr});
  return Status::Ok();
}

Status PreparedGraphs::Prepare(const FlatBuffers& buffers, KernelFactory& training,
                               KernelFactory& evaluation) {
  const auto prepare = [&](auto& graphs, KernelFactory& kernels) -> Status {
    for (auto& [size, graph] : graphs) {
      GACCD_ASSIGN_OR_RETURN(graph.executor, Executor::Prepare(std::move(graph.ids.graph), buffers,
                                                               kernels, micro_steps_));
    }
    return Status::Ok();
  };
  GACCD_RETURN_IF_ERROR(prepare(all<TrainingGraph>(), training));
  GACCD_RETURN_IF_ERROR(prepare(all<EncodingGraph>(), training));
  return prepare(all<EvaluationGraph>(), evaluation);
}

void PreparedGraphs::Attach(void* arena, void* scratch, void* kept) {
  ForEach([&](const auto& graph) { graph.executor->Attach(arena, scratch, kept); });
}

std::int64_t PreparedGraphs::arena_bytes() const {
  std::int64_t bytes = 0;
  ForEach([&](const auto& graph) {
    bytes = std::max(bytes, graph.executor ? graph.executor->arena_bytes()
                                           : PlanMemory(graph.ids.graph, micro_steps_).arena_bytes);
  });
  return bytes;
}

std::int64_t PreparedGraphs::scratch_bytes() const {
  std::int64_t bytes = 0;
  ForEach([&bytes](const auto& graph) {
    if (graph.executor) bytes = std::max(bytes, graph.executor->scratch_bytes());
  });
  return bytes;
}

std::vector<std::int64_t> PreparedGraphs::UpdateSumElements() const {
  std::vector<std::int64_t> elements;
  if (all<TrainingGraph>().empty()) return elements;
  const Graph& graph = all<TrainingGraph>().begin()->second.graph();
  for (const Node& node : graph.nodes()) {
    if (!node.function->is_update_sum()) continue;
    elements.push_back(Elements(graph.value(node.outputs[0]).spec.shape));
  }
  return elements;
}

std::int64_t PreparedGraphs::kept_bytes() const {
  std::int64_t bytes = 0;
  ForEach([&](const auto& graph) {
    bytes = std::max(bytes, graph.executor ? graph.executor->kept_bytes()
                                           : PlanMemory(graph.ids.graph, micro_steps_).kept_bytes);
  });
  return bytes;
}

std::vector<std::int64_t> PreparedGraphs::InputBytes(const SampleSpec& sample) const {
  constexpr std::int64_t kAlignment = 256;
  const std::size_t tensors = sample.tensors.size();
  std::vector<bool> is_read(tensors + 2);
  std::vector<std::int64_t> bytes(tensors + 2);
  const auto visit_all = [&](const auto& graphs) {
    for (const auto& [size, graph] : graphs) {
      for (const BoundInput& input : graph.inputs) {
        if (input.from == BoundInput::From::kUpdate) continue;  // in memory of the caller
        is_read[InputIndex(input, sample)] = true;
      }
      for (std::size_t i = 0; i < bytes.size(); ++i) {
        const std::int64_t needed = i < tensors
                                        ? size.samples * RowBytes(sample.tensors[i], size.length)
                                        : static_cast<std::int64_t>(sizeof(std::int64_t)) *
                                              (i == tensors ? size.samples : 1);
        bytes[i] = std::max(bytes[i], needed);
      }
    }
  };
  std::apply([&](const auto&... graphs) { (visit_all(graphs), ...); }, graphs_);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = is_read[i] ? (bytes[i] + kAlignment - 1) / kAlignment * kAlignment : 0;
  }
  return bytes;
}

Evaluation ReadEvaluation(const PreparedGraph<EvaluationGraph>& graph, std::int64_t samples,
                          const std::function<const void*(ValueId output)>& data) {
  const auto read = [&]<typename T>(std::optional<ValueId> id, std::vector<T> values) {
    if (!id) return values;
    const auto bytes = static_cast<std::size_t>(graph.graph().value(*id).spec.bytes());
    values.resize(bytes / sizeof(T));
    std::memcpy(values.data(), data(*id), bytes);
    return values;
  };
  Evaluation evaluation{.samples = samples};
  const EvaluationGraph& ids = graph.ids;
  evaluation.loss_sum = read(ids.loss_sum, std::vector{0.0})[0];
  // Without a divisor in the graph, every sample has one prediction.
  evaluation.divisor = read(ids.divisor, std::vector{static_cast<double>(samples)})[0];
  evaluation.ranks = read(ids.ranks, std::vector<std::int32_t>());
  evaluation.best = read(ids.best, std::vector<std::int32_t>());
  evaluation.prediction = read(ids.prediction, std::vector<float>());
  return evaluation;
}

std::size_t InputIndex(const BoundInput& input, const SampleSpec& sample) {
  if (input.from == BoundInput::From::kTensor) return input.tensor;
  return sample.tensors.size() + (input.from == BoundInput::From::kPosition ? 1 : 0);
}

Result<std::vector<BoundInput>> BindByName(std::span<const nn::GraphInput> inputs,
                                           const SampleSpec& sample) {
  std::vector<BoundInput> bound;
  for (const nn::GraphInput& input : inputs) {
    BoundInput next{.value = input.value};
    if (input.name == nn::kSampleIds) {
      next.from = BoundInput::From::kSampleIds;
    } else if (input.name == nn::kUpdate) {
      next.from = BoundInput::From::kUpdate;
    } else if (input.name == nn::kPosition) {
      next.from = BoundInput::From::kPosition;
    } else {
      const TensorSpec* tensor = sample.Find(input.name);
      if (tensor == nullptr) {
        return Status(ErrorKind::kInternal,
                      StrCat("no tensor for the graph's input '", input.name, "'"));
      }
      next.tensor = static_cast<std::size_t>(tensor - sample.tensors.data());
    }
    bound.push_back(next);
  }
  return bound;
}

}  // namespace gaccd
