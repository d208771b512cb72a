#include "tests/unit/engine/sequence_cases.h"

#include <algorithm>
#include <cmath>

#include "daemon/autograd/add.h"
#include "daemon/ops/activations.h"
#include "daemon/ops/attention.h"
#include "daemon/ops/cast.h"
#include "daemon/ops/dropout.h"
#include "daemon/ops/embedding.h"
#include "daemon/ops/join_columns.h"
#include "daemon/ops/layer_norm.h"
#include "daemon/ops/linear.h"
#include "daemon/ops/mean_squared_error.h"
#include "daemon/ops/multiply.h"
#include "daemon/ops/pool_rows.h"
#include "daemon/ops/row_functions.h"
#include "daemon/ops/token_cross_entropy.h"

namespace gaccd {
namespace {

ValueId CastTo(GraphBench& bench, DType dtype, ValueId x) {
  return dtype == DType::kF32 ? x : bench.Apply(std::make_shared<Cast>(dtype), {x});
}

// A parameter, so that the gradient can be seen.
ValueId Float(GraphBench& bench, const CaseSize& s, const std::string& name, const Shape& shape,
              double limit = 1) {
  return CastTo(bench, s.dtype, bench.Parameter(name, shape, limit));
}

ValueId Distance(GraphBench& bench, ValueId y) {
  const Shape shape = bench.graph().value(y).spec.shape;  // a copy: recording moves the values
  return bench.Apply(std::make_shared<MeanSquaredError>(), {y, bench.Input("targets", shape)});
}

ValueId ActivationOf(GraphBench& bench, const CaseSize& s, ActivationKind kind) {
  const ValueId x = Float(bench, s, "x", {s.rows, s.in}, 2);
  return Distance(bench, bench.Apply(std::make_shared<Activation>(kind), {x}));
}

// Two heads of width `out` in sequences of `rows`.
ValueId AttentionOf(GraphBench& bench, const CaseSize& s, bool causal,
                    const std::vector<std::int32_t>& lengths) {
  const auto sequences = static_cast<std::int64_t>(std::max<std::size_t>(lengths.size(), 1));
  std::vector<ValueId> inputs = {Float(bench, s, "qkv", {sequences * s.rows, 6 * s.out})};
  if (!lengths.empty()) inputs.push_back(bench.Ids("lengths", {sequences}, lengths));
  const AttentionOptions options{.heads = 2, .length = s.rows, .causal = causal};
  return Distance(bench, bench.Apply(std::make_shared<Attention>(options), std::move(inputs)));
}

// Every third position is ignored.
ValueId TokensOf(GraphBench& bench, const CaseSize& s, float smoothing, bool weighted) {
  const std::int64_t classes = s.out + 1;
  std::vector<std::int32_t> labels;
  for (std::int32_t n = 0; n < s.rows; ++n) {
    labels.push_back(n % 3 == 2 ? -100 : n % static_cast<std::int32_t>(classes));
  }
  std::vector<ValueId> inputs = {Float(bench, s, "z", {s.rows, classes}, 3),
                                 bench.Ids("labels", {s.rows}, std::move(labels))};
  if (weighted) inputs.push_back(bench.Input("weights", {s.rows}));
  const TokenCrossEntropyOptions options{.label_smoothing = smoothing};
  return bench.Apply(std::make_shared<TokenCrossEntropy>(options), std::move(inputs));
}

// What models of text are made of; `in` is the width.
const GraphCase kCases[] = {
    {"gelu",
     [](GraphBench& b, const CaseSize& s) { return ActivationOf(b, s, ActivationKind::kGelu); }},
    {"gelu_tanh", [](GraphBench& b,
                     const CaseSize& s) { return ActivationOf(b, s, ActivationKind::kGeluTanh); }},
    {"tanh",
     [](GraphBench& b, const CaseSize& s) { return ActivationOf(b, s, ActivationKind::kTanh); }},
    {"silu",
     [](GraphBench& b, const CaseSize& s) { return ActivationOf(b, s, ActivationKind::kSilu); }},
    {"multiply",
     [](GraphBench& b, const CaseSize& s) {
       const ValueId x = b.Parameter("x", {s.rows, s.in});
       return Distance(b, b.Apply(std::make_shared<Multiply>(-0.75), {x}));
     }},
    {"join_columns",  // f32 only
     [](GraphBench& b, const CaseSize& s) {
       const ValueId left = b.Parameter("a", {s.rows, s.in});
       const ValueId right = b.Parameter("b", {s.rows, s.out});
       return Distance(b, b.Apply(std::make_shared<JoinColumns>(), {left, right}));
     }},
    {"embedding",  // ids that occur several times, and not at all
     [](GraphBench& bench, const CaseSize& s) {
       const ValueId ids = bench.Ids("ids", {s.rows, 3}, s.out + 2);
       const ValueId table = bench.Parameter("table", {s.out + 2, s.in});
       return Distance(bench, bench.Apply(std::make_shared<Embedding>(s.dtype), {ids, table}));
     }},
    {"embedding_tied_to_the_head",
     [](GraphBench& bench, const CaseSize& s) {
       const ValueId ids = bench.Ids("ids", {s.rows}, s.out + 2);
       const double limit = 0.25 / std::sqrt(static_cast<double>(s.in));
       const ValueId table = bench.Parameter("table", {s.out + 2, s.in}, limit);
       const ValueId x = bench.Apply(std::make_shared<Embedding>(s.dtype), {ids, table});
       return Distance(bench, bench.Apply(std::make_shared<Linear>(), {x, table}));
     }},
    {"add_positions",  // two rows of the table beyond the length
     [](GraphBench& bench, const CaseSize& s) {
       const ValueId x = Float(bench, s, "x", {3 * s.rows, s.in});
       const ValueId table = bench.Parameter("table", {s.rows + 2, s.in});
       return Distance(bench, bench.Apply(std::make_shared<AddPositions>(s.rows), {x, table}));
     }},
    {"layer_norm",
     [](GraphBench& bench, const CaseSize& s) {
       const ValueId x = Float(bench, s, "x", {s.rows, s.in + 1}, 3);
       const ValueId gamma = bench.Parameter("gamma", {s.in + 1});
       const ValueId beta = bench.Parameter("beta", {s.in + 1});
       // A large eps: with two columns the curvature would be more than differences can bear.
       return Distance(bench, bench.Apply(std::make_shared<LayerNorm>(1.0F), {x, gamma, beta}));
     }},
    {"layer_norm_of_activation",
     [](GraphBench& bench, const CaseSize& s) {
       const ValueId x = bench.Apply(
           std::make_shared<Linear>(),
           {CastTo(bench, s.dtype, bench.Input("x", {s.rows, s.in})),
            bench.Parameter("w", {s.out + 1, s.in}), bench.Parameter("b", {s.out + 1})});
       const ValueId gamma = bench.Parameter("gamma", {s.out + 1});
       const ValueId beta = bench.Parameter("beta", {s.out + 1});
       const ValueId y = bench.Apply(std::make_shared<LayerNorm>(1.0F), {x, gamma, beta});
       return Distance(bench, bench.Apply(std::make_shared<Add>(), {x, y}));
     }},
    {"layer_norm_of_sum",  // fused on the GPU; the sum has another user
     [](GraphBench& bench, const CaseSize& s) {
       const Shape shape = {s.rows, s.in + 1};
       const ValueId a = Float(bench, s, "a", shape, 3);
       const ValueId b = Float(bench, s, "b", shape, 3);
       const ValueId sum = bench.Apply(std::make_shared<Add>(), {a, b});
       const ValueId gamma = bench.Parameter("gamma", {s.in + 1});
       const ValueId beta = bench.Parameter("beta", {s.in + 1});
       const ValueId y = bench.Apply(std::make_shared<LayerNorm>(1.0F), {sum, gamma, beta});
       return Distance(bench, bench.Apply(std::make_shared<Add>(), {sum, y}));
     }},
    {"attention", [](GraphBench& b, const CaseSize& s) { return AttentionOf(b, s, false, {}); }},
    {"attention_causal",
     [](GraphBench& b, const CaseSize& s) { return AttentionOf(b, s, true, {}); }},
    {"attention_with_lengths",
     [](GraphBench& bench, const CaseSize& s) {
       const auto rows = static_cast<std::int32_t>(s.rows);
       return AttentionOf(bench, s, false, {rows, (rows + 1) / 2, 0});
     }},
    {"attention_causal_with_lengths",
     [](GraphBench& bench, const CaseSize& s) {
       const auto rows = static_cast<std::int32_t>(s.rows);
       return AttentionOf(bench, s, true, {rows / 2, rows});
     }},
    {"attention_of_parts",
     [](GraphBench& bench, const CaseSize& s) {
       std::vector<ValueId> parts;
       for (const char* part : {"q", "k", "v"}) {
         parts.push_back(Float(bench, s, part, {2 * s.rows, 2 * s.out}));
       }
       const AttentionOptions options{.heads = 2, .length = s.rows, .causal = true};
       return Distance(bench, bench.Apply(std::make_shared<Attention>(options), parts));
     }},
    {"softmax",
     [](GraphBench& bench, const CaseSize& s) {
       const ValueId x = Float(bench, s, "x", {s.rows, s.in}, 2);
       return Distance(bench, bench.Apply(std::make_shared<Softmax>(), {x}));
     }},
    {"l2_normalize",
     [](GraphBench& bench, const CaseSize& s) {
       const ValueId x = Float(bench, s, "x", {s.rows, s.in});
       for (float& value : bench.parameter("x")) value += value < 0 ? -0.25F : 0.25F;
       return Distance(bench, bench.Apply(std::make_shared<L2Normalize>(), {x}));
     }},
    {"l2_normalize_of_short_rows",  // below eps, so divided by eps
     [](GraphBench& bench, const CaseSize& s) {
       const ValueId x = Float(bench, s, "x", {s.rows, s.in});
       return Distance(bench, bench.Apply(std::make_shared<L2Normalize>(100.0F), {x}));
     }},
    {"first_rows",
     [](GraphBench& bench, const CaseSize& s) {
       const ValueId x = Float(bench, s, "x", {3 * s.rows, s.in});
       return Distance(bench,
                       bench.Apply(std::make_shared<PoolRows>(PoolKind::kFirst, s.rows), {x}));
     }},
    {"mean_rows",
     [](GraphBench& bench, const CaseSize& s) {
       const ValueId x = Float(bench, s, "x", {3 * s.rows, s.in});
       return Distance(bench,
                       bench.Apply(std::make_shared<PoolRows>(PoolKind::kMean, s.rows), {x}));
     }},
    {"mean_rows_with_lengths",
     [](GraphBench& bench, const CaseSize& s) {
       const auto rows = static_cast<std::int32_t>(s.rows);
       const ValueId x = Float(bench, s, "x", {3 * s.rows, s.in});
       const ValueId lengths = bench.Ids("lengths", {3}, {(rows + 1) / 2, 0, rows});
       return Distance(
           bench, bench.Apply(std::make_shared<PoolRows>(PoolKind::kMean, s.rows), {x, lengths}));
     }},
    {"dropout",
     [](GraphBench& bench, const CaseSize& s) {
       const ValueId x = Float(bench, s, "x", {3 * s.rows, s.in});
       const ValueId ids = bench.Longs("sample_ids", {7, 1LL << 40, 0});
       const DropoutOptions options{.probability = 0.25F, .seed = 3, .layer = 5};
       return Distance(bench, bench.Apply(std::make_shared<Dropout>(options),
                                          {x, ids, bench.Longs("update", {12})}));
     }},
    {"token_cross_entropy",
     [](GraphBench& b, const CaseSize& s) { return TokensOf(b, s, 0, false); }},
    {"token_cross_entropy_smoothed",
     [](GraphBench& b, const CaseSize& s) { return TokensOf(b, s, 0.1F, false); }},
    {"token_cross_entropy_weighted",
     [](GraphBench& b, const CaseSize& s) { return TokensOf(b, s, 0.3F, true); }},
};

}  // namespace

std::span<const GraphCase> SequenceCases() { return kCases; }

}  // namespace gaccd
