// Tables of vectors, indexed by id or by position in a sequence. Functions: ops/layout/embedding.h.
// Initial values are normal with a given deviation, as in transformers.
#pragma once

#include "daemon/nn/module.h"

namespace gaccd::nn {

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

}  // namespace gaccd::nn
