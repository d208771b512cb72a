// Recorder: records modules into one graph for a number of samples. Inputs of the graph are the
// parameters of the model and the tensors of the batch.
//
// The first error is kept; afterwards every call does nothing and returns kNoValue. So modules need
// no error checks, and the owner of the recorder calls status() once at the end. Used by one
// thread.
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

namespace gaccd {
struct DropoutOptions;
}

namespace gaccd::nn {

inline constexpr ValueId kNoValue = -1;

// Inputs that every batch has, whatever the tensors of its samples.
inline constexpr std::string_view kSampleIds = "sample_ids";  // i64 [samples]: indices in the data
// i64 [1]: number of the update since the start
inline constexpr std::string_view kUpdate = "update";
inline constexpr std::string_view kPosition = "position";  // i64 [1]: BatchView::position

// A graph input that is bound for every batch.
struct GraphInput {
  std::string name;  // a tensor of the sample, or one of the names above
  ValueId value = kNoValue;
};

// Statistics of an update that a layer adds to its running statistics when the update ends
// (ops/norm/batch_norm.h).
struct RunningUpdate {
  // output of an update_sum; none: statistics of micro-batches, accumulated as gradients of the
  // buffers
  ValueId sums = kNoValue;
  std::int64_t run_size = 0;  // samples per run; 0: no runs
  std::int64_t values = 0;    // per channel in one sample
  double momentum = 0;
  ParameterIndex mean = 0;  // buffers
  ParameterIndex variance = 0;
  ParameterIndex updates = 0;
};

struct RecorderOptions {
  std::int64_t samples = 1;
  std::int64_t update_samples = 0;  // of the largest update; 0: `samples`
  bool training = false;
  // If set, dropout is recorded with this seed of the masks.
  std::optional<std::uint64_t> dropout_seed = std::nullopt;
  DType activations = DType::kF32;  // f32 inputs of the batch are cast to this type
  // Overrides which parameters are frozen; null: as declared.
  const FlatLayout* layout = nullptr;
};

class Recorder {
 public:
  // All arguments must outlive the recorder.
  Recorder(Graph& graph, const ParameterList& parameters, const SampleSpec& sample,
           const RecorderOptions& options);

  // The tensor of the batch with this name, [samples, ...], kSampleIds, kUpdate or kPosition;
  // kConfig if the data does not have it.
  ValueId Input(std::string_view name);
  // Whether the samples have a tensor of this name.
  [[nodiscard]] bool HasTensor(std::string_view name) const;
  // T of a value [B, T]; kConfig for another shape.
  std::int64_t SequenceLength(ValueId value);
  ValueId Parameter(ParameterIndex index);

  // Output 0 of function(inputs). where: prefix of errors: "layer 'fc1'".
  ValueId Apply(std::string_view where, std::shared_ptr<const Function> function,
                std::vector<ValueId> inputs);
  // Accumulates output i of function(inputs) over the micro-steps of an update in the gradient of
  // buffers[i], whose place in the flat gradients is otherwise unused.
  void AddToBuffers(std::string_view where, std::shared_ptr<const Function> function,
                    std::vector<ValueId> inputs, std::span<const ParameterIndex> buffers);

  // x in the layout of image functions, [N, H, W, C]; kConfig if x is not an image.
  // Four-dimensional results of Apply() on such images have this layout, too.
  ValueId Image(std::string_view where, ValueId x);
  // The same values in the layout of data and users: images become [N, C, H, W].
  ValueId Plain(std::string_view where, ValueId x);
  // Shape of one sample as users see it: [C, H, W] for images in either layout.
  [[nodiscard]] Shape SampleShape(ValueId x) const;

  // Keeps `status` if it is the first error.
  void Check(std::string_view where, Status status);

  // The shape of a value; empty for kNoValue.
  [[nodiscard]] Shape shape(ValueId value) const;
  // REQUIRES: not kNoValue.
  [[nodiscard]] DType dtype(ValueId value) const { return graph_.value(value).spec.dtype; }
  [[nodiscard]] std::int64_t samples() const { return options_.samples; }
  [[nodiscard]] std::int64_t update_samples() const {
    return options_.update_samples > 0 ? options_.update_samples : options_.samples;
  }
  // Dropout of x (ops/pointwise/dropout.h), with different masks for each call, whose seed and
  // layer are set here; x itself if dropout is not recorded or the probability is 0.
  ValueId Dropout(std::string_view where, const DropoutOptions& options, ValueId x);
  // The same for an x that does not depend on samples: one mask for all of them.
  ValueId SharedDropout(std::string_view where, const DropoutOptions& options, ValueId x);
  [[nodiscard]] bool training() const { return options_.training; }
  // Marks the end of a block of the model: the graph may be cut at this value, so that the block is
  // recomputed in the backward (autograd/passes.h).
  void EndBlock(ValueId value) { block_ends_.push_back(value); }
  // In forward order. REQUIRES: status() is ok.
  [[nodiscard]] const std::vector<ValueId>& block_ends() const { return block_ends_; }
  void AddRunningUpdate(const RunningUpdate& update) { running_.push_back(update); }
  [[nodiscard]] const std::vector<RunningUpdate>& running_updates() const { return running_; }
  // Inputs recorded by Input() so far.
  [[nodiscard]] const std::vector<GraphInput>& inputs() const { return inputs_; }
  // The type of activations.
  [[nodiscard]] DType activations() const { return options_.activations; }

  [[nodiscard]] const Status& status() const { return status_; }

 private:
  [[nodiscard]] bool IsFrozen(ParameterIndex index) const;
  // ids: the input whose numbers select the masks.
  ValueId DropBy(std::string_view where, DropoutOptions options, ValueId x, std::string_view ids);

  Graph& graph_;
  const ParameterList& parameters_;
  const SampleSpec& sample_;
  RecorderOptions options_;
  std::vector<GraphInput> inputs_;
  std::vector<RunningUpdate> running_;
  std::vector<ValueId> block_ends_;
  std::map<std::string, ValueId, std::less<>> seen_;  // by name: the input, or its cast
  std::map<ParameterIndex, ValueId> parameter_values_;
  std::set<ValueId> channels_last_;  // images in that layout
  std::uint64_t dropouts_ = 0;       // recorded so far: the same for every number of samples
  Status status_;
};

}  // namespace gaccd::nn
