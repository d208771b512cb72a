#include "daemon/models/bert.h"

#include "collectives/base/strings.h"
#include "daemon/ops/layout/pool_rows.h"
#include "daemon/ops/norm/row_functions.h"
#include "daemon/ops/pointwise/cast.h"

namespace gaccd {
namespace {

constexpr double kDeviation = 0.02;

nn::LinearOptions Dense(std::int64_t in, std::int64_t out) {
  return {.in = in, .out = out, .deviation = kDeviation};
}
nn::LayerNormOptions Norm(const BertSpec& bert) {
  return {.width = bert.width, .epsilon = bert.epsilon};
}
nn::EmbeddingOptions Table(std::int64_t rows, const BertSpec& bert) {
  return {.rows = rows, .width = bert.width, .deviation = kDeviation};
}

std::int64_t Hidden(const BertSpec& bert) { return bert.hidden > 0 ? bert.hidden : 4 * bert.width; }

std::vector<BertLayer> MakeLayers(const nn::Scope& scope, const BertSpec& bert) {
  std::vector<BertLayer> layers;
  for (std::int64_t i = 0; i < bert.layers; ++i) layers.emplace_back(scope / i, bert);
  return layers;
}

}  // namespace

BertEmbeddings::BertEmbeddings(const nn::Scope& scope, const BertSpec& bert)
    : Module(scope),
      words_(scope / "word_embeddings", Table(bert.vocabulary, bert)),
      positions_(scope / "position_embeddings", Table(bert.context, bert)),
      segments_(scope / "token_type_embeddings", Table(bert.segments, bert)),
      layer_norm_(scope / "LayerNorm", Norm(bert)),
      drop_(scope / "dropout", bert.dropout),
      add_(scope) {}

ValueId BertEmbeddings::operator()(nn::Recorder& recorder, ValueId tokens,
                                   std::int64_t length) const {
  const ValueId words = words_(recorder, tokens);
  const ValueId both = recorder.HasTensor("segments")
                           ? add_(recorder, words, segments_(recorder, recorder.Input("segments")))
                           : segments_.AddFirstRow(recorder, words);
  return drop_(recorder, layer_norm_(recorder, positions_(recorder, both, length)));
}

BertLayer::BertLayer(const nn::Scope& scope, const BertSpec& bert)
    : Module(scope),
      query_(scope / "attention" / "self" / "query", Dense(bert.width, bert.width)),
      key_(scope / "attention" / "self" / "key", Dense(bert.width, bert.width)),
      value_(scope / "attention" / "self" / "value", Dense(bert.width, bert.width)),
      attend_(scope / "attention" / "self", {.heads = bert.heads}),
      attention_dense_(scope / "attention" / "output" / "dense", Dense(bert.width, bert.width)),
      attention_norm_(scope / "attention" / "output" / "LayerNorm", Norm(bert)),
      intermediate_(scope / "intermediate" / "dense", Dense(bert.width, Hidden(bert))),
      gelu_(scope / "intermediate" / "gelu", ActivationKind::kGelu),
      output_dense_(scope / "output" / "dense", Dense(Hidden(bert), bert.width)),
      output_norm_(scope / "output" / "LayerNorm", Norm(bert)),
      drop_(scope / "dropout", bert.dropout),
      add_(scope) {}

ValueId BertLayer::operator()(nn::Recorder& recorder, ValueId x, const BertText& text) const {
  const ValueId attended =
      attend_(recorder, {query_(recorder, x), key_(recorder, x), value_(recorder, x)}, text.length,
              text.lengths);
  const ValueId added = drop_(recorder, attention_dense_(recorder, attended));
  x = attention_norm_(recorder, add_(recorder, x, added));
  const ValueId hidden = gelu_(recorder, intermediate_(recorder, x));
  return output_norm_(recorder,
                      add_(recorder, x, drop_(recorder, output_dense_(recorder, hidden))));
}

BertClassifier::BertClassifier(nn::ParameterList& parameters, const BertSpec& bert)
    : Module(nn::Scope(parameters, "classifier")),
      first_(nn::Scope(parameters, "bert.pooler")),
      pooler_(nn::Scope(parameters, "bert.pooler.dense"), Dense(bert.width, bert.width)),
      tanh_(nn::Scope(parameters, "bert.pooler"), ActivationKind::kTanh),
      drop_(nn::Scope(parameters, "dropout"), bert.dropout),
      classifier_(nn::Scope(parameters, "classifier"), Dense(bert.width, bert.classes)) {}

ValueId BertClassifier::operator()(nn::Recorder& recorder, ValueId x, std::int64_t length) const {
  const ValueId pooled = tanh_(recorder, pooler_(recorder, first_(recorder, x, length)));
  return classifier_(recorder, drop_(recorder, pooled));
}

BertMaskedTokens::BertMaskedTokens(const nn::Scope& scope, const BertSpec& bert,
                                   nn::ParameterIndex words)
    : Module(scope),
      dense_(scope / "transform" / "dense", Dense(bert.width, bert.width)),
      gelu_(scope / "transform" / "gelu", ActivationKind::kGelu),
      norm_(scope / "transform" / "LayerNorm", Norm(bert)),
      decoder_(scope, words, bert.vocabulary) {}

ValueId BertMaskedTokens::operator()(nn::Recorder& recorder, ValueId x,
                                     std::int64_t /*length*/) const {
  return decoder_(recorder, norm_(recorder, gelu_(recorder, dense_(recorder, x))));
}

namespace {

std::variant<BertClassifier, BertMaskedTokens> MakeHead(nn::ParameterList& parameters,
                                                        const BertSpec& bert,
                                                        nn::ParameterIndex words) {
  if (bert.head == BertHead::kSequenceClassification) return BertClassifier(parameters, bert);
  return BertMaskedTokens(nn::Scope(parameters, "cls.predictions"), bert, words);
}

}  // namespace

Bert::Bert(const BertSpec& bert)
    : spec_(bert),
      embeddings_(nn::Scope(parameters_, "bert.embeddings"), bert),
      layers_(MakeLayers(nn::Scope(parameters_, "bert.encoder.layer"), bert)),
      head_(MakeHead(parameters_, bert, embeddings_.words())) {}

ValueId Bert::RecordStates(nn::Recorder& recorder, BertText* text) const {
  const ValueId tokens = recorder.Input("tokens");
  text->length = recorder.SequenceLength(tokens);
  CheckContext(recorder, text->length, spec_.context, "model.bert.context");
  if (recorder.HasTensor("lengths")) text->lengths = recorder.Input("lengths");
  ValueId x = embeddings_(recorder, tokens, text->length);
  recorder.EndBlock(x);
  for (const BertLayer& layer : layers_) {
    x = layer(recorder, x, *text);
    recorder.EndBlock(x);
  }
  return x;
}

ValueId Bert::RecordEmbedding(nn::Recorder& recorder) const {
  BertText text;
  std::vector<ValueId> inputs = {RecordStates(recorder, &text)};
  if (text.lengths) inputs.push_back(*text.lengths);
  ValueId mean =
      recorder.Apply("embedding", std::make_shared<PoolRows>(PoolKind::kMean, text.length), inputs);
  if (recorder.activations() != DType::kF32) {
    mean = recorder.Apply("embedding", std::make_shared<Cast>(DType::kF32), {mean});
  }
  return recorder.Apply("embedding", std::make_shared<L2Normalize>(), {mean});
}

ValueId Bert::Record(nn::Recorder& recorder) const {
  BertText text;
  const ValueId x = RecordStates(recorder, &text);
  return std::visit([&](const auto& head) { return head(recorder, x, text.length); }, head_);
}

SampleSpec Bert::ExampleSample() const { return TokenSample(spec_.context, spec_.vocabulary); }

// Files of BertModel do not have the prefix; older ones also contain the position ids.
WeightNames Bert::weight_names() const {
  WeightNames names{.prefix = "bert.", .buffers = {"embeddings.position_ids"}, .tied = {}};
  if (spec_.head == BertHead::kMaskedLm) {
    names.tied = {{"cls.predictions.decoder.weight", "bert.embeddings.word_embeddings.weight"},
                  {"cls.predictions.decoder.bias", "cls.predictions.bias"}};
  }
  return names;
}

std::string Bert::Describe() const {
  return StrCat("bert, ", spec_.layers, " layers of width ", spec_.width, ", ", spec_.heads,
                " heads, ",
                spec_.head == BertHead::kMaskedLm
                    ? StrCat("masked tokens, a vocabulary of ", spec_.vocabulary)
                    : StrCat(spec_.classes, " classes"));
}

}  // namespace gaccd
