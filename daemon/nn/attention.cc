#include "daemon/nn/attention.h"

#include <utility>

namespace gaccd::nn {

ValueId SelfAttention::operator()(Recorder& recorder, std::vector<ValueId> qkv, std::int64_t length,
                                  std::optional<ValueId> lengths) const {
  if (lengths) qkv.push_back(*lengths);
  const AttentionOptions options{
      .heads = options_.heads, .length = length, .causal = options_.causal};
  return Apply(recorder, std::make_shared<Attention>(options), std::move(qkv));
}

}  // namespace gaccd::nn
