// GraphNetwork: a user's PyTorch model, exported by gaccd.export of tools/python: parameters with
// the names of its state_dict, and the ops of graph_ops.h. Inputs are tensors of the data, by name.
// The prediction is [samples, width], or [samples, length, width] as rows.
#pragma once

#include <map>
#include <memory>
#include <string_view>
#include <vector>

#include "daemon/models/graph_file.h"
#include "daemon/models/graph_recorder.h"
#include "daemon/models/network.h"
#include "daemon/models/norm_group.h"

namespace gaccd {

class GraphNetwork final : public Network {
 public:
  // Reads spec.path. Errors: ReadGraph(), CheckGraphNode(); kConfig for an unused parameter, inputs
  // of the wrong kind, a parameter as output, and a digest that differs from that of the spec.
  static Result<std::shared_ptr<const Network>> Load(const GraphSpec& spec);
  // The same for a graph in memory. name: for messages.
  static Result<std::shared_ptr<const Network>> Make(GraphFile graph,
                                                     const NormStatistics& statistics,
                                                     const std::string& name);

  ValueId Record(nn::Recorder& recorder) const override;
  [[nodiscard]] SampleSpec ExampleSample() const override;
  [[nodiscard]] NetworkFields fields() const override {
    return {.vocabulary = "the vocabulary of the model that is exported",
            .outputs = "the outputs of the model that is exported"};
  }
  [[nodiscard]] WeightNames weight_names() const override;
  [[nodiscard]] std::string Describe() const override;
  [[nodiscard]] bool ignores_padding() const override { return ignores_padding_; }

 private:
  // The body for the length of the texts in the batch.
  [[nodiscard]] const GraphBody& BodyFor(nn::Recorder& recorder) const;
  ValueId RecordBody(GraphRecorder& values) const;
  // GraphRecorder::dropped() for texts cut to `length`; 0: not cut.
  [[nodiscard]] std::vector<Shape> DroppedAt(std::int64_t length) const;
  // Whether dropout masks of the tokens of a text are independent of the length it is cut to.
  [[nodiscard]] bool DropsTheSame() const;

  GraphNetwork(GraphFile graph, const NormStatistics& statistics);

  GraphFile graph_;
  NormStatistics statistics_;
  bool ignores_padding_ = false;
  std::vector<Shape> dropped_;  // DroppedAt(0), if there are graphs for shorter texts
  std::map<std::string_view, nn::ParameterIndex> indices_;  // names are those of graph_
};

// Sets the absolute path and the digest of the job's graph, if it has one. Ranks compare them, and
// checkpoints identify the network by them.
Result<Job> WithGraphDigest(Job job);

}  // namespace gaccd
