// Recorder: what modules record into: one graph for a number of samples, with the parameters of the
// model and the tensors of the batch as its inputs.
//
// The first refusal is kept, and from there on every call does nothing and returns kNoValue. So
// modules read like formulas, and the owner of the recorder calls status() once at the end.
// Used by one thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/autograd/graph.h"
#include "daemon/nn/parameter.h"
#include "daemon/tensor/flat_layout.h"
#include "daemon/tensor/sample.h"
#include "daemon/tensor/shape.h"

namespace gaccd::nn {

inline constexpr ValueId kNoValue = -1;

// Inputs that every batch has, whatever its samples are made of.
inline constexpr std::string_view kSampleIds = "sample_ids";  // i64 [samples]: numbers in the data
inline constexpr std::string_view kUpdate = "update";         // i64 [1]: number since the start
inline constexpr std::string_view kPosition = "position";     // i64 [1]: BatchView::position

// An input of a graph that is bound anew for every batch.
struct GraphInput {
  std::string name;  // of a tensor of the sample, or one of those above
  ValueId value = kNoValue;
};

// Statistics of an update that a layer adds to its running ones when the update ends
// (ops/norm/batch_norm.h).
struct RunningUpdate {
  ValueId sums = kNoValue;    // an update_sum; none: of micro-batches, as gradients of the buffers
  std::int64_t run_size = 0;  // samples of each run that the sums belong to; 0: there are none
  std::int64_t values = 0;    // of a channel, in one sample
  double momentum = 0;
  ParameterIndex mean = 0;  // buffers
  ParameterIndex variance = 0;
  ParameterIndex updates = 0;
};

struct RecorderOptions {
  std::int64_t samples = 1;
  std::int64_t update_samples = 0;  // of the largest update; 0: as `samples`
  bool training = false;
  // Dropout is recorded, with masks of this seed.
  std::optional<std::uint64_t> dropout_seed = std::nullopt;
  DType activations = DType::kF32;  // to which f32 inputs of the batch are cast
  // Says which parameters are frozen; null: as they were declared.
  const FlatLayout* layout = nullptr;
};

class Recorder {
 public:
  // All must outlive the recorder.
  Recorder(Graph& graph, const ParameterList& parameters, const SampleSpec& sample,
           const RecorderOptions& options);

  // The tensor of the batch of this name, [samples, ...], kSampleIds, kUpdate or kPosition; kConfig
  // when the data has none.
  ValueId Input(std::string_view name);
  // Whether the samples have a tensor of this name.
  [[nodiscard]] bool HasTensor(std::string_view name) const;
  // T of a value [B, T]; kConfig for another shape.
  std::int64_t SequenceLength(ValueId value);
  ValueId Parameter(ParameterIndex index);

  // Output 0 of function(inputs). `where` is put before an error: "layer 'fc1'".
  ValueId Apply(std::string_view where, std::shared_ptr<const Function> function,
                std::vector<ValueId> inputs);
  // What output i of function(inputs) is in the micro-steps of an update is added as the gradient
  // of buffers[i], whose place in the flat gradients is free.
  void AddToBuffers(std::string_view where, std::shared_ptr<const Function> function,
                    std::vector<ValueId> inputs, std::span<const ParameterIndex> buffers);

  // Images in the order that functions of images take, [N, H, W, C]; kConfig for what is none. What
  // Apply() makes of such images, if it has four dimensions, is in this order, too.
  ValueId Image(std::string_view where, ValueId x);
  // The same values as data and users have them: images become [N, C, H, W].
  ValueId Plain(std::string_view where, ValueId x);
  // Of one sample as users have it: [C, H, W] for images in either order.
  [[nodiscard]] Shape SampleShape(ValueId x) const;

  // Keeps `status` unless it is ok or there is a refusal already.
  void Check(std::string_view where, Status status);

  // The shape of a value; empty for kNoValue.
  [[nodiscard]] Shape shape(ValueId value) const;
  // REQUIRES: not kNoValue.
  [[nodiscard]] DType dtype(ValueId value) const { return graph_.value(value).spec.dtype; }
  [[nodiscard]] std::int64_t samples() const { return options_.samples; }
  [[nodiscard]] std::int64_t update_samples() const {
    return options_.update_samples > 0 ? options_.update_samples : options_.samples;
  }
  // x with values dropped with this probability (ops/pointwise/dropout.h), each call with masks of
  // its own; x itself where dropout is not recorded, or never drops. whole_samples: of each sample
  // all values or none. cut: as in DropoutOptions.
  ValueId Dropout(std::string_view where, double probability, ValueId x, bool whole_samples = false,
                  std::vector<CutDimension> cut = {});
  [[nodiscard]] bool training() const { return options_.training; }
  // A block of the model ends with this value: the graph may be cut here, so that what is between
  // two cuts is computed a second time in the backward (autograd/recompute.h).
  void EndBlock(ValueId value) { block_ends_.push_back(value); }
  // In the order of the forward. REQUIRES: status() is ok.
  [[nodiscard]] const std::vector<ValueId>& block_ends() const { return block_ends_; }
  void AddRunningUpdate(const RunningUpdate& update) { running_.push_back(update); }
  [[nodiscard]] const std::vector<RunningUpdate>& running_updates() const { return running_; }
  // What Input() has recorded so far.
  [[nodiscard]] const std::vector<GraphInput>& inputs() const { return inputs_; }
  // The type of activations.
  [[nodiscard]] DType activations() const { return options_.activations; }

  [[nodiscard]] const Status& status() const { return status_; }

 private:
  [[nodiscard]] bool IsFrozen(ParameterIndex index) const;

  Graph& graph_;
  const ParameterList& parameters_;
  const SampleSpec& sample_;
  RecorderOptions options_;
  std::vector<GraphInput> inputs_;
  std::vector<RunningUpdate> running_;
  std::vector<ValueId> block_ends_;
  std::map<std::string, ValueId, std::less<>> seen_;  // by the modules: the input, or its cast
  std::map<ParameterIndex, ValueId> parameter_values_;
  std::set<ValueId> channels_last_;  // images in that order
  std::uint64_t dropouts_ = 0;       // recorded so far: the same for every number of samples
  Status status_;
};

}  // namespace gaccd::nn
