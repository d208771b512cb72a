// Model: the layers of a job, checked against the data, ready to be recorded as graphs.
// Immutable after Make(); any thread may use it.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "daemon/autograd/graph.h"
#include "daemon/config/job.h"
#include "daemon/tensor/flat_layout.h"
#include "daemon/tensor/sample.h"

namespace gaccd {

// Forward, backward and accumulation of one micro-step; already simplified.
struct TrainingGraph {
  Graph graph;
  ValueId features;  // input f32 [samples, feature_shape...]
  ValueId target;    // input: labels i32 [samples] or targets f32 [samples, target_width]
  ValueId weight;    // input f32 [1]: what one sample weighs, 1/D of the whole update
  ValueId loss_sum;  // output f64 [1]: the sum over samples, not weighted
};

// Forward only.
struct EvaluationGraph {
  Graph graph;
  ValueId features;
  ValueId target;
  ValueId loss_sum;
  std::optional<ValueId> correct;  // output f64 [1]: rows that are right, for class labels
};

class Model {
 public:
  // kConfig when a layer refuses what the one before gives, or the loss does not fit the data; the
  // message names the layer and both shapes.
  static Result<Model> Make(const ModelSpec& spec, const SampleSpec& sample);

  [[nodiscard]] const FlatLayout& layout() const { return layout_; }

  // kBF16: the features are cast once, everything from there to the logits or the prediction is
  // bf16, and so are the gradients of these; losses and parameter gradients are f32 (see
  // ops/linear.h). No CPU kernel takes bf16. REQUIRES: samples >= 1.
  [[nodiscard]] Result<TrainingGraph> RecordTraining(std::int64_t samples,
                                                     Precision precision = Precision::kF32) const;
  [[nodiscard]] Result<EvaluationGraph> RecordEvaluation(
      std::int64_t samples, Precision precision = Precision::kF32) const;

  // The initial weights, a function of the seed alone: uniform in +-1/sqrt(in) for weight and bias
  // of a linear layer, as PyTorch's nn.Linear. REQUIRES: parameters.size() == layout().size().
  void Initialize(std::uint64_t seed, std::span<float> parameters) const;

  // "784-512-512-10": the widths of the linear layers.
  [[nodiscard]] std::string Describe() const;

 private:
  Model(const ModelSpec& spec, const SampleSpec& sample) : spec_(spec), sample_(sample) {}

  struct Forward {
    ValueId features;
    ValueId target;
    ValueId prediction;
    ValueId loss_sum;
  };
  Result<Forward> RecordForward(Graph& graph, std::int64_t samples, Precision precision) const;
  Result<ValueId> RecordLayer(Graph& graph, const LayerSpec& layer, ValueId input) const;
  Status AddParameters();
  [[nodiscard]] ValueId Parameter(Graph& graph, const std::string& name) const;

  ModelSpec spec_;
  SampleSpec sample_;
  FlatLayout layout_;
};

}  // namespace gaccd
