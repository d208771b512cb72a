// Gpt: GPT-2 (Radford et al. 2019): learned positions, pre-norm blocks, GELU by tanh, causal
// attention, and a head tied to the token table. Input: "tokens" [T]; prediction: logits of the
// next token at every position. Parameters have the names, shapes and initial values of Hugging
// Face's GPT2LMHeadModel.
#pragma once

#include <vector>

#include "daemon/models/network.h"
#include "daemon/nn/linear.h"
#include "daemon/nn/norms.h"
#include "daemon/nn/sequence_layers.h"
#include "daemon/nn/simple_layers.h"

namespace gaccd {

class GptAttention final : public nn::Module {
 public:
  GptAttention(const nn::Scope& scope, const GptSpec& gpt);
  ValueId operator()(nn::Recorder& recorder, ValueId x, std::int64_t length) const;

 private:
  nn::Linear c_attn_;
  nn::SelfAttention attend_;
  nn::Linear c_proj_;
  nn::Dropout drop_;
};

class GptMlp final : public nn::Module {
 public:
  GptMlp(const nn::Scope& scope, const GptSpec& gpt);
  ValueId operator()(nn::Recorder& recorder, ValueId x) const;

 private:
  nn::Linear c_fc_;
  nn::Activation act_;
  nn::Linear c_proj_;
  nn::Dropout drop_;
};

class GptBlock final : public nn::Module {
 public:
  GptBlock(const nn::Scope& scope, const GptSpec& gpt);
  ValueId operator()(nn::Recorder& recorder, ValueId x, std::int64_t length) const;

 private:
  nn::LayerNorm ln_1_;
  GptAttention attn_;
  nn::LayerNorm ln_2_;
  GptMlp mlp_;
  nn::AddResidual add_;
};

class Gpt final : public Network {
 public:
  explicit Gpt(const GptSpec& gpt);

  ValueId Record(nn::Recorder& recorder) const override;
  [[nodiscard]] SampleSpec ExampleSample() const override;
  [[nodiscard]] NetworkFields fields() const override {
    return {.vocabulary = "model.gpt.vocabulary", .outputs = "model.gpt.vocabulary"};
  }
  [[nodiscard]] WeightNames weight_names() const override;
  [[nodiscard]] std::string Describe() const override;

 private:
  GptSpec spec_;
  nn::Embedding wte_;
  nn::Positions wpe_;
  nn::Dropout drop_;
  std::vector<GptBlock> h_;
  nn::LayerNorm ln_f_;
  nn::TiedLinear lm_head_;
};

}  // namespace gaccd
