// Network: an architecture that a job can name: its parameters, and how a prediction is recorded
// from the tensors of a batch. Immutable; any thread may use it.
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

// What others' files of weights may have besides the parameters under their names.
struct WeightNames {
  std::string prefix;                       // may be missing from the names: "transformer."
  std::vector<std::string> buffers;         // ends of names that are no parameters: ".attn.bias"
  std::map<std::string, std::string> tied;  // copies of parameters: they must be equal
  // Of `tied`, those that are written with the parameters: names of a state_dict.
  std::map<std::string, std::string> copies = {};
};

// Networks whose prediction is two representations of a sample side by side, [samples, 2 width],
// for a contrastive loss (ops/loss/info_nce.h).
struct PairSpec {
  std::int64_t width = 0;
  std::string_view log_scale;  // the parameter
  double max_scale = 0;        // 0: no limit
};

// What a user changes where the model does not fit the data, in the words of the job.
struct NetworkFields {
  std::string_view vocabulary = "the rows of the embedding";
  std::string_view outputs = "the outputs of the last layer";
};

class Network {
 public:
  virtual ~Network() = default;

  [[nodiscard]] const nn::ParameterList& parameters() const { return parameters_; }

  // Records the prediction [rows, width] from inputs that it asks `recorder` for; of every sample
  // the same number of rows, one after another.
  virtual ValueId Record(nn::Recorder& recorder) const = 0;

  // Records what stands for a sample as a whole, f32 [samples, width]: a row of length 1, or two
  // side by side. Refused where the architecture has none.
  virtual ValueId RecordEmbedding(nn::Recorder& recorder) const;

  // A sample that Record() takes, without labels or targets: what can be known without the data.
  [[nodiscard]] virtual SampleSpec ExampleSample() const = 0;

  // Whether tokens beyond the length of a text change nothing, where the samples have lengths: a
  // batch may be cut.
  [[nodiscard]] virtual bool ignores_padding() const { return false; }

  [[nodiscard]] virtual WeightNames weight_names() const { return {}; }

  [[nodiscard]] virtual NetworkFields fields() const { return {}; }

  [[nodiscard]] virtual std::optional<PairSpec> pair() const { return std::nullopt; }

  // "784-512-512-10": for people.
  [[nodiscard]] virtual std::string Describe() const = 0;

 protected:
  nn::ParameterList parameters_;  // filled by the constructor
};

// kConfig, refused by `recorder`, where a sample has more tokens than the model has positions:
// those of `field` of the job.
void CheckContext(nn::Recorder& recorder, std::int64_t tokens, std::int64_t context,
                  std::string_view field);

// A sample of one sequence: "tokens" i32 [length] in [0, vocabulary).
[[nodiscard]] SampleSpec TokenSample(std::int64_t length, std::int64_t vocabulary);

// The network that the job describes. Errors: of a graph, GraphNetwork::Load(); others have none.
Result<std::shared_ptr<const Network>> MakeNetwork(const ModelSpec& spec);

}  // namespace gaccd
