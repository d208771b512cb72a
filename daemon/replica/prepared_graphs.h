// PreparedGraphs: the graphs of one rank's model, one for each size of a batch, ready to run on one
// device, with one arena. A replica binds what they read and runs them. Used by one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <tuple>
#include <vector>

#include "daemon/autograd/executor.h"
#include "daemon/replica/graph_inputs.h"
#include "daemon/replica/model.h"

namespace gaccd {

struct ReplicaOptions {
  std::set<std::int64_t> micro_batches = {};  // sizes >= 1 that MicroStep() will be called with
  std::set<std::int64_t> eval_batches = {};   // the same for Evaluate()
  std::int64_t micro_steps_per_update = 1;
  // The most samples of an update, over all ranks and of this one: what a contrastive loss holds
  // at once.
  std::int64_t effective_batch = 0;
  std::int64_t rank_samples = 0;
  // Of a stage of a pipeline: micro-batches whose activations it holds at once.
  std::int64_t in_flight = 1;
  // kBlocks: graphs for training keep of each block its input alone (autograd/recompute.h).
  Recompute recompute = Recompute::kNone;
  // A Replica that knows its planned_bytes() and cannot run: it has no activations.
  bool only_plan = false;
};

// A graph for batches of one size.
template <typename Ids>
struct PreparedGraph {
  Ids ids;  // Prepare() moves its graph into the executor
  std::vector<BoundInput> inputs;
  std::unique_ptr<Executor> executor;

  [[nodiscard]] const Graph& graph() const { return executor ? executor->graph() : ids.graph; }
};
template <typename Ids>
using GraphsBySize = std::map<BatchSize, PreparedGraph<Ids>>;

class PreparedGraphs {
 public:
  // What a device does to a recorded graph: round, fuse, check that there are kernels.
  using Rewrite = std::function<Status(Graph& graph)>;

  // Records a graph for every size of the options, whole and cut; and for no samples, where a rank
  // without them runs the collectives of the model all the same. precision: that of the activations
  // as they are recorded. kConfig where blocks are to be computed again and the model has none.
  Status Record(const Model& model, const ReplicaOptions& options, Precision precision,
                const Rewrite& rewrite);
  // Makes the kernels. `buffers` and the factories must outlive this.
  Status Prepare(const FlatBuffers& buffers, KernelFactory& training, KernelFactory& evaluation);
  // One memory of arena_bytes(), one of scratch_bytes() and one of kept_bytes(): the graphs never
  // run at the same time.
  void Attach(void* arena, void* scratch, void* kept = nullptr);

  // Of the largest graph. Scratch is known after Prepare().
  [[nodiscard]] std::int64_t arena_bytes() const;
  [[nodiscard]] std::int64_t scratch_bytes() const;
  // Of one micro-batch between its segments (MemoryPlan); 0: it runs at once.
  [[nodiscard]] std::int64_t kept_bytes() const;

  // Of the sums over the update in a graph for training, in their order: elements, f64. None: there
  // is no such graph.
  [[nodiscard]] std::vector<std::int64_t> UpdateSumElements() const;

  // Of every tensor of a batch, then of its ids and of its position, in GPU memory: what the
  // largest batch of any graph needs, aligned to 256 bytes; 0: no graph reads it.
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
  // kInternal for a size that was not recorded.
  template <typename Ids>
  Result<PreparedGraph<Ids>*> Find(BatchSize size) {
    const auto found = all<Ids>().find(size);
    if (found == all<Ids>().end()) return NotPrepared(size);
    return &found->second;
  }

  // visit(const PreparedGraph<Ids>&) of every graph.
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
  std::int64_t micro_steps_ = 1;  // of an update
};

// What a loss is made of, without a weight: loss_sum / divisor is the mean.
struct LossSums {
  double loss_sum = 0;
  double divisor = 0;  // predictions with a label, or the sum of their weights
};

struct Evaluation {
  std::int64_t samples = 0;
  double loss_sum = 0;
  double divisor = 0;  // as in LossSums
  // For class labels, one a prediction: see ops/loss/label_ranks.h.
  std::vector<std::int32_t> ranks;
  std::vector<std::int32_t> best;
  std::vector<float> prediction;  // for targets: [samples, width]; of Model::MakeForInference()
};

// `data` is asked for the values of each output in host memory, in the order of
// EvaluationGraph::Outputs().
Evaluation ReadEvaluation(const PreparedGraph<EvaluationGraph>& graph, std::int64_t samples,
                          const std::function<const void*(ValueId output)>& data);

}  // namespace gaccd
