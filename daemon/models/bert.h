// Bert: BERT (Devlin et al. 2018): tokens, positions and segments, post-norm blocks, exact GELU,
// attention up to the length of the text, and a head. Inputs: "tokens" [T], and if the data has
// them "segments" [T] and "lengths" []; without lengths, padding counts as text. Parameters have
// the names, shapes and initial values of Hugging Face's BertForSequenceClassification or, with the
// head for masked tokens, BertForMaskedLM.
#pragma once

#include <optional>
#include <variant>
#include <vector>

#include "daemon/models/network.h"
#include "daemon/nn/linear.h"
#include "daemon/nn/norms.h"
#include "daemon/nn/sequence_layers.h"
#include "daemon/nn/simple_layers.h"

namespace gaccd {

// Lengths of the batch, for every block.
struct BertText {
  std::int64_t length = 0;         // rows per sample
  std::optional<ValueId> lengths;  // of the texts; nullopt: all rows are text
};

class BertEmbeddings final : public nn::Module {
 public:
  BertEmbeddings(const nn::Scope& scope, const BertSpec& bert);
  ValueId operator()(nn::Recorder& recorder, ValueId tokens, std::int64_t length) const;
  [[nodiscard]] nn::ParameterIndex words() const { return words_.weight(); }

 private:
  nn::Embedding words_;
  nn::Positions positions_;
  nn::Embedding segments_;
  nn::LayerNorm layer_norm_;
  nn::Dropout drop_;
  nn::AddResidual add_;
};

class BertLayer final : public nn::Module {
 public:
  BertLayer(const nn::Scope& scope, const BertSpec& bert);
  ValueId operator()(nn::Recorder& recorder, ValueId x, const BertText& text) const;

 private:
  nn::Linear query_;
  nn::Linear key_;
  nn::Linear value_;
  nn::SelfAttention attend_;
  nn::Linear attention_dense_;
  nn::LayerNorm attention_norm_;
  nn::Linear intermediate_;
  nn::Activation gelu_;
  nn::Linear output_dense_;
  nn::LayerNorm output_norm_;
  nn::Dropout drop_;
  nn::AddResidual add_;
};

// Classifies samples: first token, pooler with tanh, dropout, linear layer.
class BertClassifier final : public nn::Module {
 public:
  BertClassifier(nn::ParameterList& parameters, const BertSpec& bert);
  // x [B length, width] -> [B, classes]
  ValueId operator()(nn::Recorder& recorder, ValueId x, std::int64_t length) const;

 private:
  nn::FirstRow first_;
  nn::Linear pooler_;
  nn::Activation tanh_;
  nn::Dropout drop_;
  nn::Linear classifier_;
};

// Predicts a token per row: a layer with GELU and layer norm, then the transposed token table.
class BertMaskedTokens final : public nn::Module {
 public:
  BertMaskedTokens(const nn::Scope& scope, const BertSpec& bert, nn::ParameterIndex words);
  // x [B length, width] -> [B length, vocabulary]
  ValueId operator()(nn::Recorder& recorder, ValueId x, std::int64_t length) const;

 private:
  nn::Linear dense_;
  nn::Activation gelu_;
  nn::LayerNorm norm_;
  nn::TiedLinear decoder_;
};

class Bert final : public Network {
 public:
  explicit Bert(const BertSpec& bert);

  ValueId Record(nn::Recorder& recorder) const override;
  // The mean of the text's last hidden states, as in sentence-transformers.
  ValueId RecordEmbedding(nn::Recorder& recorder) const override;
  [[nodiscard]] SampleSpec ExampleSample() const override;
  [[nodiscard]] NetworkFields fields() const override {
    return {.vocabulary = "model.bert.vocabulary", .outputs = "model.bert.classes"};
  }
  [[nodiscard]] bool ignores_padding() const override { return true; }
  [[nodiscard]] WeightNames weight_names() const override;
  [[nodiscard]] std::string Describe() const override;

 private:
  // The last hidden states [B length, width].
  ValueId RecordStates(nn::Recorder& recorder, BertText* text) const;

  BertSpec spec_;
  BertEmbeddings embeddings_;
  std::vector<BertLayer> layers_;
  std::variant<BertClassifier, BertMaskedTokens> head_;
};

}  // namespace gaccd
