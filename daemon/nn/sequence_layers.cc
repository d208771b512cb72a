#include "daemon/nn/sequence_layers.h"

#include <utility>

#include "daemon/ops/layout/embedding.h"

namespace gaccd::nn {

namespace {

ParameterSpec TableSpec(const EmbeddingOptions& options) {
  return {.name = "weight",
          .shape = {options.rows, options.width},
          .initializer = Normal(options.deviation)};
}

}  // namespace

Embedding::Embedding(const Scope& scope, const EmbeddingOptions& options)
    : Layer(scope), weight_(Declare(scope, TableSpec(options))) {}

ValueId Embedding::operator()(Recorder& recorder, ValueId ids) const {
  return Apply(recorder, std::make_shared<gaccd::Embedding>(recorder.activations()),
               {ids, recorder.Parameter(weight_)});
}

ValueId Embedding::AddFirstRow(Recorder& recorder, ValueId x) const {
  return Apply(recorder, std::make_shared<AddPositions>(1), {x, recorder.Parameter(weight_)});
}

Positions::Positions(const Scope& scope, const EmbeddingOptions& options)
    : Module(scope), weight_(Declare(scope, TableSpec(options))) {}

ValueId Positions::operator()(Recorder& recorder, ValueId x, std::int64_t length) const {
  return Apply(recorder, std::make_shared<AddPositions>(length), {x, recorder.Parameter(weight_)});
}

ValueId SelfAttention::operator()(Recorder& recorder, std::vector<ValueId> qkv, std::int64_t length,
                                  std::optional<ValueId> lengths) const {
  if (lengths) qkv.push_back(*lengths);
  const AttentionOptions options{
      .heads = options_.heads, .length = length, .causal = options_.causal};
  return Apply(recorder, std::make_shared<Attention>(options), std::move(qkv));
}

}  // namespace gaccd::nn
