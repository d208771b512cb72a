#include "daemon/models/network.h"

#include "collectives/base/strings.h"

namespace gaccd {

ValueId Network::RecordEmbedding(nn::Recorder& recorder) const {
  recorder.Check(Describe(), {ErrorKind::kConfig, "has no embeddings of samples"});
  return nn::kNoValue;
}

void CheckContext(nn::Recorder& recorder, std::int64_t tokens, std::int64_t context,
                  std::string_view field) {
  if (tokens <= context) return;
  recorder.Check("model", {ErrorKind::kConfig,
                           StrCat("the data has samples of ", tokens,
                                  " tokens, the model a context "
                                  "of ",
                                  context, ": raise ", field,
                                  ", or make shorter samples "
                                  "(stream.length of the data, --length of tools/prepare)")});
}

SampleSpec TokenSample(std::int64_t length, std::int64_t vocabulary) {
  return {.tensors = {{"tokens", DType::kI32, {length}}}, .vocabulary = vocabulary};
}

}  // namespace gaccd
