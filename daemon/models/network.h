// Network: an architecture that a job can select: its parameters, and how a prediction is recorded
// from the tensors of a batch. Immutable and thread-safe.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/config/job.h"
#include "daemon/nn/parameter.h"
#include "daemon/nn/recorder.h"
#include "daemon/tensor/sample.h"

namespace gaccd {

// Differences in names that are accepted in files of weights.
struct WeightNames {
  std::string prefix;                       // optional in names: "transformer."
  std::vector<std::string> buffers;         // suffixes of ignored tensors: ".attn.bias"
  std::map<std::string, std::string> tied;  // copy -> parameter, which must be equal
  // The part of `tied` that is also written, as in a state_dict.
  std::map<std::string, std::string> copies = {};
};

// For networks whose prediction is two representations of a sample, [samples, 2 width], for a
// contrastive loss (ops/loss/info_nce.h).
struct PairSpec {
  std::int64_t width = 0;
  std::string_view log_scale;  // name of the parameter
  double max_scale = 0;        // 0: no limit
};

// The fields of the job to change if the model does not fit the data, for messages.
struct NetworkFields {
  std::string_view vocabulary = "the rows of the embedding";
  std::string_view outputs = "the outputs of the last layer";
};

class Network {
 public:
  virtual ~Network() = default;

  [[nodiscard]] const nn::ParameterList& parameters() const { return parameters_; }

  // Records the prediction [rows, width] from inputs of `recorder`, with the same number of
  // consecutive rows per sample.
  virtual ValueId Record(nn::Recorder& recorder) const = 0;

  // Records the embedding of each sample, f32 [samples, width]: a normalised row, or two
  // concatenated ones. An error of `recorder` if the architecture has none.
  virtual ValueId RecordEmbedding(nn::Recorder& recorder) const;

  // A sample that Record() accepts, without labels or targets, as far as it is known without data.
  [[nodiscard]] virtual SampleSpec ExampleSample() const = 0;

  // Whether tokens beyond the length of a text do not change the prediction, so that a batch may be
  // cut, if the samples have lengths.
  [[nodiscard]] virtual bool ignores_padding() const { return false; }

  [[nodiscard]] virtual WeightNames weight_names() const { return {}; }

  [[nodiscard]] virtual NetworkFields fields() const { return {}; }

  [[nodiscard]] virtual std::optional<PairSpec> pair() const { return std::nullopt; }

  // "784-512-512-10", for messages.
  [[nodiscard]] virtual std::string Describe() const = 0;

 protected:
  nn::ParameterList parameters_;  // filled by the constructor
};

// Reports kConfig to `recorder` if a sample has more tokens than the model has positions, which are
// set by `field` of the job.
void CheckContext(nn::Recorder& recorder, std::int64_t tokens, std::int64_t context,
                  std::string_view field);

// A sample of one sequence: "tokens" i32 [length] in [0, vocabulary).
[[nodiscard]] SampleSpec TokenSample(std::int64_t length, std::int64_t vocabulary);

// The network that the job describes. Fails only for graphs: GraphNetwork::Load().
Result<std::shared_ptr<const Network>> MakeNetwork(const ModelSpec& spec);

// The input images of networks.

// The input "features" as images [samples, channels, height, width]. Grey images may have no
// channel dimension, and square images may be vectors.
ValueId RecordImages(nn::Recorder& recorder, std::int64_t channels);

}  // namespace gaccd
