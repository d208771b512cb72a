// PreparedGraphs: the graphs of one rank's model, one per batch size, ready to run on one device in
// one arena. A replica binds their inputs and runs them. Used by one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <tuple>
#include <vector>

#include "daemon/autograd/executor.h"
#include "daemon/autograd/graph.h"
#include "daemon/nn/recorder.h"
#include "daemon/replica/model.h"
#include "daemon/tensor/sample.h"

namespace gaccd {

// Maps each input of a graph to a tensor of a batch, once by name, so that training needs no
// look-ups.
struct BoundInput {
  enum class From { kTensor, kSampleIds, kUpdate, kPosition };

  ValueId value;
  From from = From::kTensor;
  std::size_t tensor = 0;  // index of the tensor in the spec
};

// Index of an input in a batch on a device: its tensors, then the ids, then the position. REQUIRES:
// not kUpdate.
[[nodiscard]] std::size_t InputIndex(const BoundInput& input, const SampleSpec& sample);

// kInternal, with the name, if the samples have no such input.
Result<std::vector<BoundInput>> BindByName(std::span<const nn::GraphInput> inputs,
                                           const SampleSpec& sample);

struct ReplicaOptions {
  std::set<std::int64_t> micro_batches = {};  // sizes >= 1 that MicroStep() will be called with
  std::set<std::int64_t> eval_batches = {};   // the same for Evaluate()
  std::int64_t micro_steps_per_update = 1;
  // The maximum samples of an update, over all ranks and on this rank, which a contrastive loss
  // holds at once.
  std::int64_t effective_batch = 0;
  std::int64_t rank_samples = 0;
  // Pipeline stage: number of micro-batches whose activations are held at once.
  std::int64_t in_flight = 1;
  // kBlocks: training graphs keep only the input of each block (autograd/passes.h).
  Recompute recompute = Recompute::kNone;
  // Results must not depend on how micro-batches are split among ranks: sums over the update are
  // reproducible (tensor/reproducible_sum.h), and kernels do not depend on their number.
  bool any_split = false;
  // The Replica is only for planned_bytes(): it has no activations and cannot run.
  bool only_plan = false;

  [[nodiscard]] std::int64_t largest_micro_batch() const {  // 0: none
    return micro_batches.empty() ? 0 : *micro_batches.rbegin();
  }
};

// A graph for one batch size.
template <typename Ids>
struct PreparedGraph {
  Ids ids;  // Prepare() moves ids.graph into the executor
  std::vector<BoundInput> inputs;
  std::unique_ptr<Executor> executor;

  [[nodiscard]] const Graph& graph() const { return executor ? executor->graph() : ids.graph; }
};
template <typename Ids>
using GraphsBySize = std::map<BatchSize, PreparedGraph<Ids>>;

class PreparedGraphs {
 public:
  // Device-specific changes of a recorded graph: rounding, fusing, check for missing kernels.
  using Rewrite = std::function<Status(Graph& graph)>;

  // Records a graph for every size in the options, full length and cut; also for 0 samples if a
  // rank without samples has to run the model's collectives. precision: of the activations in the
  // recorded graph. kConfig if blocks are to be recomputed and the model has none.
  Status Record(const Model& model, const ReplicaOptions& options, Precision precision,
                const Rewrite& rewrite);
  // Makes the kernels. `buffers` and the factories must outlive this.
  Status Prepare(const FlatBuffers& buffers, KernelFactory& training, KernelFactory& evaluation);
  // Memory of arena_bytes(), scratch_bytes() and, for each kept micro-batch, kept_bytes(). Shared
  // by all graphs, which never run at the same time.
  void Attach(void* arena, void* scratch, void* kept = nullptr);

  // Of the largest graph. Scratch is known after Prepare().
  [[nodiscard]] std::int64_t arena_bytes() const;
  [[nodiscard]] std::int64_t scratch_bytes() const;
  // Memory that one micro-batch keeps between its segments (MemoryPlan); 0: it runs at once.
  [[nodiscard]] std::int64_t kept_bytes() const;

  // Number of f64 elements of each sum over the update in a training graph, in order. Empty if
  // there is no such graph.
  [[nodiscard]] std::vector<std::int64_t> UpdateSumElements() const;

  // Bytes in GPU memory of every tensor of a batch, of its ids and of its position, in this order:
  // the maximum over all graphs, aligned to 256; 0: no graph reads it.
  [[nodiscard]] std::vector<std::int64_t> InputBytes(const SampleSpec& sample) const;

  // Ids: TrainingGraph, EncodingGraph or EvaluationGraph.
  template <typename Ids>
  [[nodiscard]] GraphsBySize<Ids>& all() {
    return std::get<GraphsBySize<Ids>>(graphs_);
  }
  template <typename Ids>
  [[nodiscard]] const GraphsBySize<Ids>& all() const {
    return std::get<GraphsBySize<Ids>>(graphs_);
  }
  // kInternal if the size was not recorded.
  template <typename Ids>
  Result<PreparedGraph<Ids>*> Find(BatchSize size) {
    const auto found = all<Ids>().find(size);
    if (found == all<Ids>().end()) return NotPrepared(size);
    return &found->second;
  }

  // Calls visit(const PreparedGraph<Ids>&) for every graph.
  void ForEach(const auto& visit) const {
    const auto visit_all = [&visit](const auto& graphs) {
      for (const auto& [size, graph] : graphs) visit(graph);
    };
    std::apply([&](const auto&... graphs) { (visit_all(graphs), ...); }, graphs_);
  }

  [[nodiscard]] static Status NotPrepared(BatchSize size);

 private:
  template <typename Ids>
  Status Add(const Model& model, BatchSize size, Result<Ids> recorded, const Rewrite& rewrite,
             Recompute recompute = Recompute::kNone);

  std::tuple<GraphsBySize<TrainingGraph>, GraphsBySize<EncodingGraph>,
             GraphsBySize<EvaluationGraph>>
      graphs_;
  std::int64_t micro_steps_ = 1;  // per update
};

// Unweighted sums of the loss: loss_sum / divisor is the mean.
struct LossSums {
  double loss_sum = 0;
  double divisor = 0;  // number of predictions with a label, or the sum of their weights
};

struct Evaluation {
  std::int64_t samples = 0;
  double loss_sum = 0;
  double divisor = 0;  // see LossSums
  // Class labels, one per prediction: see ops/loss/label_ranks.h.
  std::vector<std::int32_t> ranks;
  std::vector<std::int32_t> best;
  // targets: [samples, width]; or the answer of Model::MakeForInference()
  std::vector<float> prediction;
};

// data(output) must return the values of the output in host memory; called in the order of
// EvaluationGraph::Outputs().
Evaluation ReadEvaluation(const PreparedGraph<EvaluationGraph>& graph, std::int64_t samples,
                          const std::function<const void*(ValueId output)>& data);

}  // namespace gaccd
