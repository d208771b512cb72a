#include "daemon/models/gpt.h"

#include <cmath>

#include "collectives/base/strings.h"

namespace gaccd {
namespace {

constexpr double kInitDeviation = 0.02;

// A linear layer whose weight is [in, out].
nn::LinearOptions Conv1D(std::int64_t in, std::int64_t out, double deviation) {
  return {.in = in, .out = out, .order = WeightOrder::kInOut, .deviation = deviation};
}

// Projections into the residual stream have smaller initial values, so that it does not grow with
// the depth.
double ResidualDeviation(const GptSpec& gpt) {
  return kInitDeviation / std::sqrt(2 * static_cast<double>(gpt.layers));
}

std::int64_t Hidden(const GptSpec& gpt) { return gpt.hidden > 0 ? gpt.hidden : 4 * gpt.width; }

std::vector<GptBlock> MakeBlocks(const nn::Scope& scope, const GptSpec& gpt) {
  std::vector<GptBlock> blocks;
  for (std::int64_t i = 0; i < gpt.layers; ++i) blocks.emplace_back(scope / i, gpt);
  return blocks;
}

}  // namespace

GptAttention::GptAttention(const nn::Scope& scope, const GptSpec& gpt)
    : Module(scope),
      c_attn_(scope / "c_attn", Conv1D(gpt.width, 3 * gpt.width, kInitDeviation)),
      attend_(scope, {.heads = gpt.heads, .causal = true}),
      c_proj_(scope / "c_proj", Conv1D(gpt.width, gpt.width, ResidualDeviation(gpt))),
      drop_(scope / "resid_dropout", gpt.dropout) {}

ValueId GptAttention::operator()(nn::Recorder& recorder, ValueId x, std::int64_t length) const {
  return drop_(recorder, c_proj_(recorder, attend_(recorder, {c_attn_(recorder, x)}, length)));
}

GptMlp::GptMlp(const nn::Scope& scope, const GptSpec& gpt)
    : Module(scope),
      c_fc_(scope / "c_fc", Conv1D(gpt.width, Hidden(gpt), kInitDeviation)),
      act_(scope / "act", ActivationKind::kGeluTanh),
      c_proj_(scope / "c_proj", Conv1D(Hidden(gpt), gpt.width, ResidualDeviation(gpt))),
      drop_(scope / "dropout", gpt.dropout) {}

ValueId GptMlp::operator()(nn::Recorder& recorder, ValueId x) const {
  return drop_(recorder, c_proj_(recorder, act_(recorder, c_fc_(recorder, x))));
}

GptBlock::GptBlock(const nn::Scope& scope, const GptSpec& gpt)
    : Module(scope),
      ln_1_(scope / "ln_1", {.width = gpt.width, .epsilon = gpt.epsilon}),
      attn_(scope / "attn", gpt),
      ln_2_(scope / "ln_2", {.width = gpt.width, .epsilon = gpt.epsilon}),
      mlp_(scope / "mlp", gpt),
      add_(scope) {}

ValueId GptBlock::operator()(nn::Recorder& recorder, ValueId x, std::int64_t length) const {
  x = add_(recorder, x, attn_(recorder, ln_1_(recorder, x), length));
  return add_(recorder, x, mlp_(recorder, ln_2_(recorder, x)));
}

Gpt::Gpt(const GptSpec& gpt)
    : spec_(gpt),
      wte_(nn::Scope(parameters_, "transformer.wte"),
           {.rows = gpt.vocabulary, .width = gpt.width, .deviation = kInitDeviation}),
      wpe_(nn::Scope(parameters_, "transformer.wpe"),
           {.rows = gpt.context, .width = gpt.width, .deviation = kInitDeviation}),
      drop_(nn::Scope(parameters_, "transformer.drop"), gpt.dropout),
      h_(MakeBlocks(nn::Scope(parameters_, "transformer.h"), gpt)),
      ln_f_(nn::Scope(parameters_, "transformer.ln_f"),
            {.width = gpt.width, .epsilon = gpt.epsilon}),
      lm_head_(nn::Scope(parameters_, "lm_head"), wte_.weight()) {}

ValueId Gpt::Record(nn::Recorder& recorder) const {
  const ValueId tokens = recorder.Input("tokens");
  const std::int64_t length = recorder.SequenceLength(tokens);
  CheckContext(recorder, length, spec_.context, "model.gpt.context");
  ValueId x = drop_(recorder, wpe_(recorder, wte_(recorder, tokens), length));
  recorder.EndBlock(x);
  for (const GptBlock& block : h_) {
    x = block(recorder, x, length);
    recorder.EndBlock(x);
  }
  return lm_head_(recorder, ln_f_(recorder, x));
}

SampleSpec Gpt::ExampleSample() const { return TokenSample(spec_.context, spec_.vocabulary); }

// Files of GPT2Model do not have the prefix; older ones also contain the causal mask.
WeightNames Gpt::weight_names() const {
  return {.prefix = "transformer.",
          .buffers = {".attn.bias", ".attn.masked_bias"},
          .tied = {{"lm_head.weight", "transformer.wte.weight"}}};
}

std::string Gpt::Describe() const {
  return StrCat("gpt, ", spec_.layers, " layers of width ", spec_.width, ", ", spec_.heads,
                " heads, context ", spec_.context);
}

}  // namespace gaccd
