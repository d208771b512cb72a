// Layers of sequences: embeddings and attention.
#pragma once

#include <optional>
#include <vector>

#include "daemon/nn/module.h"
#include "daemon/ops/attention/attention.h"

namespace gaccd::nn {

// Tables of vectors, indexed by id or by position in a sequence. Functions: ops/layout/embedding.h.
// Initial values are normal with a given deviation, as in transformers.
struct EmbeddingOptions {
  std::int64_t rows = 0;
  std::int64_t width = 0;
  double deviation = 0.02;
};

class Embedding final : public Layer {
 public:
  // weight [rows, width].
  Embedding(const Scope& scope, const EmbeddingOptions& options);

  // ids i32 [N] or [B, T] -> [N, width] or [B T, width]
  ValueId operator()(Recorder& recorder, ValueId ids) const override;

  // x [N, width] -> x[n] + weight[0]: adds the embedding of id 0 to all rows.
  ValueId AddFirstRow(Recorder& recorder, ValueId x) const;

  [[nodiscard]] ParameterIndex weight() const { return weight_; }

 private:
  ParameterIndex weight_;
};

class Positions final : public Module {
 public:
  // weight [rows, width]: sequences may have up to `rows` tokens.
  Positions(const Scope& scope, const EmbeddingOptions& options);

  // x [B T, width] -> x[b T + t] + weight[t]
  ValueId operator()(Recorder& recorder, ValueId x, std::int64_t length) const;

 private:
  ParameterIndex weight_;
};

// Multi-head self-attention (ops/attention/attention.h), without the projections around it.
struct SelfAttentionOptions {
  std::int64_t heads = 1;
  bool causal = false;
};

class SelfAttention final : public Module {
 public:
  SelfAttention(const Scope& scope, const SelfAttentionOptions& options)
      : Module(scope), options_(options) {}

  // qkv: q, k and v [B length, width], or one value [B length, 3 width] -> [B length, width].
  // lengths: i32 [B] if sequences are shorter.
  ValueId operator()(Recorder& recorder, std::vector<ValueId> qkv, std::int64_t length,
                     std::optional<ValueId> lengths = std::nullopt) const;

 private:
  SelfAttentionOptions options_;
};

}  // namespace gaccd::nn
