// GraphNetwork: a user's PyTorch model, exported by gaccd.export of tools/python: parameters under
// the names of its state_dict, and the ops of graph_ops.h. It reads the tensors of the data that
// its inputs name. The prediction is [samples, width], or [samples, length, width] as rows.
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
  // Reads spec.path. Errors: ReadGraph(), CheckGraphNode(); kConfig where a parameter is not used
  // or is in the place of a value, and where the file has another digest than the spec.
  static Result<std::shared_ptr<const Network>> Load(const GraphSpec& spec);
  // Of a graph in memory. name: for messages.
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
  // The one for texts of as many tokens as the batch has.
  [[nodiscard]] const GraphBody& BodyFor(nn::Recorder& recorder) const;
  ValueId RecordBody(GraphRecorder& values) const;
  // GraphRecorder::dropped() of texts that are cut to `length`; 0: that are not.
  [[nodiscard]] std::vector<Shape> DroppedAt(std::int64_t length) const;
  // Whether dropout can draw the same for the tokens of a text, whatever it is cut to.
  [[nodiscard]] bool DropsTheSame() const;

  GraphNetwork(GraphFile graph, const NormStatistics& statistics);

  GraphFile graph_;
  NormStatistics statistics_;
  bool ignores_padding_ = false;
  std::vector<Shape> dropped_;  // DroppedAt(0), where there are graphs for shorter texts
  std::map<std::string_view, nn::ParameterIndex> indices_;  // names are those of graph_
};

// `job` with the absolute path and the digest of its graph, where it has one: ranks compare them,
// and checkpoints know the network.
Result<Job> WithGraphDigest(Job job);

}  // namespace gaccd
