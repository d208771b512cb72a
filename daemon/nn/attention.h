// Multi-head self-attention (ops/attention/attention.h), without the projections around it.
#pragma once

#include <optional>
#include <vector>

#include "daemon/nn/module.h"
#include "daemon/ops/attention/attention.h"

namespace gaccd::nn {

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
