#include "daemon/models/network.h"

namespace gaccd {

ValueId Network::RecordEmbedding(nn::Recorder& recorder) const {
  recorder.Check(Describe(), {ErrorKind::kConfig, "has no embeddings of samples"});
  return nn::kNoValue;
}

SampleSpec TokenSample(std::int64_t length, std::int64_t vocabulary) {
  return {.tensors = {{"tokens", DType::kI32, {length}}}, .vocabulary = vocabulary};
}

}  // namespace gaccd
