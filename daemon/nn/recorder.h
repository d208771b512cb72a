// Recorder: what modules record into: one graph for a number of samples, with the parameters of the
// model and the tensors of the batch as its inputs.
//
// The first refusal is kept, and from there on every call does nothing and returns kNoValue. So
// modules read like formulas, and whoever made the recorder asks status() once at the end.
// Used by one thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/autograd/graph.h"
#include "daemon/nn/parameter.h"
#include "daemon/tensor/sample.h"

namespace gaccd::nn {

inline constexpr ValueId kNoValue = -1;

struct RecorderOptions {
  std::int64_t samples = 1;
  bool bf16 = false;  // f32 inputs of the batch are cast to bf16 before modules see them
};

class Recorder {
 public:
  // All must outlive the recorder.
  Recorder(Graph& graph, const ParameterList& parameters, const SampleSpec& sample,
           const RecorderOptions& options);

  // The tensor of the batch of this name, [samples, ...]; kConfig when the data has none.
  ValueId Input(std::string_view name);
  ValueId Parameter(ParameterIndex index);

  // Output 0 of function(inputs). `where` stands before a refusal: "layer 'fc1'".
  ValueId Apply(std::string_view where, std::shared_ptr<const Function> function,
                std::vector<ValueId> inputs);

  // Keeps `status` unless it is ok or there is a refusal already.
  void Check(std::string_view where, Status status);

  // The shape of a value; empty for kNoValue.
  [[nodiscard]] const Shape& shape(ValueId value) const;
  [[nodiscard]] std::int64_t samples() const { return options_.samples; }
  // The input of the graph that Input(name) recorded, which is what a batch is bound to.
  [[nodiscard]] std::optional<ValueId> BatchInput(std::string_view name) const;

  [[nodiscard]] const Status& status() const { return status_; }

 private:
  struct BatchTensor {
    ValueId bound = kNoValue;
    ValueId seen = kNoValue;  // by the modules
  };

  Graph& graph_;
  const ParameterList& parameters_;
  const SampleSpec& sample_;
  RecorderOptions options_;
  std::map<std::string, BatchTensor, std::less<>> inputs_;
  std::map<ParameterIndex, ValueId> parameter_values_;
  Status status_;
};

}  // namespace gaccd::nn
