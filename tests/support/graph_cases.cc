#include "tests/support/graph_cases.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "daemon/autograd/add.h"
#include "daemon/ops/attention/attention.h"
#include "daemon/ops/attention/rotary.h"
#include "daemon/ops/layout/embedding.h"
#include "daemon/ops/layout/pool_rows.h"
#include "daemon/ops/layout/prepend_row.h"
#include "daemon/ops/layout/reshape.h"
#include "daemon/ops/loss/mean_squared_error.h"
#include "daemon/ops/loss/token_cross_entropy.h"
#include "daemon/ops/norm/layer_norm.h"
#include "daemon/ops/norm/row_functions.h"
#include "daemon/ops/pointwise/activations.h"
#include "daemon/ops/pointwise/cast.h"
#include "daemon/ops/pointwise/combine.h"
#include "daemon/ops/pointwise/dropout.h"
#include "daemon/ops/pointwise/gated.h"
#include "daemon/ops/pointwise/multiply.h"
#include "daemon/ops/pointwise/number_functions.h"
#include "daemon/ops/product/linear.h"

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

ValueId ActivationCase(GraphBench& bench, const CaseSize& s, ActivationKind kind) {
  const ValueId x = Float(bench, s, "x", {s.rows, s.in}, 2);
  return Distance(bench, bench.Apply(std::make_shared<Activation>(kind), {x}));
}

ValueId GatedCase(GraphBench& bench, const CaseSize& s, ActivationKind kind) {
  const ValueId a = Float(bench, s, "a", {s.rows, s.in}, 2);
  const ValueId b = Float(bench, s, "b", {s.rows, s.in}, 2);
  return Distance(bench, bench.Apply(std::make_shared<Gated>(kind), {a, b}));
}

// Sequences of `rows` positions of `group` rows each.
ValueId RotaryCase(GraphBench& bench, const CaseSize& s, std::int64_t group) {
  const ValueId x = Float(bench, s, "x", {2 * s.rows * group, 2 * s.in});
  const ValueId cos = bench.Input("cos", {s.rows, 2 * s.in});
  const ValueId sin = bench.Input("sin", {s.rows, 2 * s.in});
  const RotaryOptions options{.length = s.rows, .group = group};
  return Distance(bench, bench.Apply(std::make_shared<Rotary>(options), {x, cos, sin}));
}

// Two layers of a transformer, the first one 16 wide.
ValueId TwoLayers(GraphBench& bench, const CaseSize& s, WeightOrder order) {
  const auto layer = [&](const std::string& name, ValueId x, std::int64_t in, std::int64_t out) {
    const Shape shape = order == WeightOrder::kInOut ? Shape{in, out} : Shape{out, in};
    const double limit = 1.5 / std::sqrt(static_cast<double>(in));
    return bench.Apply(
        std::make_shared<Linear>(false, order),
        {x, bench.Parameter(name + ".w", shape, limit), bench.Parameter(name + ".b", {out})});
  };
  const ValueId pre = layer("fc1", Float(bench, s, "x", {s.rows, s.in}), s.in, 16);
  const ValueId y = bench.Apply(std::make_shared<Activation>(ActivationKind::kGeluTanh), {pre});
  return Distance(bench, layer("fc2", y, 16, s.out));
}

// Two heads of width `out` in sequences of `rows`.
ValueId AttentionCase(GraphBench& bench, const CaseSize& s, bool causal,
                      const std::vector<std::int32_t>& lengths, bool all_rows = false) {
  const auto sequences = static_cast<std::int64_t>(std::max<std::size_t>(lengths.size(), 1));
  std::vector<ValueId> inputs = {Float(bench, s, "qkv", {sequences * s.rows, 6 * s.out})};
  if (!lengths.empty()) inputs.push_back(bench.Ids("lengths", {sequences}, lengths));
  const AttentionOptions options{
      .heads = 2, .length = s.rows, .causal = causal, .all_rows = all_rows};
  return Distance(bench, bench.Apply(std::make_shared<Attention>(options), std::move(inputs)));
}

// Every third position is ignored.
ValueId TokenLossCase(GraphBench& bench, const CaseSize& s, float smoothing, bool weighted) {
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
     [](GraphBench& b, const CaseSize& s) { return ActivationCase(b, s, ActivationKind::kGelu); }},
    {"gelu_tanh",
     [](GraphBench& b, const CaseSize& s) {
       return ActivationCase(b, s, ActivationKind::kGeluTanh);
     }},
    {"tanh",
     [](GraphBench& b, const CaseSize& s) { return ActivationCase(b, s, ActivationKind::kTanh); }},
    {"silu",
     [](GraphBench& b, const CaseSize& s) { return ActivationCase(b, s, ActivationKind::kSilu); }},
    {"sigmoid", [](GraphBench& b,
                   const CaseSize& s) { return ActivationCase(b, s, ActivationKind::kSigmoid); }},
    {"hardswish",  // within +-2, where it is a parabola
     [](GraphBench& b, const CaseSize& s) {
       return ActivationCase(b, s, ActivationKind::kHardswish);
     }},
    {"layers_with_gelu_tanh",
     [](GraphBench& b, const CaseSize& s) { return TwoLayers(b, s, WeightOrder::kOutIn); }},
    {"conv1d_with_gelu_tanh",
     [](GraphBench& b, const CaseSize& s) { return TwoLayers(b, s, WeightOrder::kInOut); }},
    {"multiply",
     [](GraphBench& b, const CaseSize& s) {
       const ValueId x = b.Parameter("x", {s.rows, s.in});
       return Distance(b, b.Apply(std::make_shared<Multiply>(-0.75), {x}));
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
    {"rms_norm",
     [](GraphBench& bench, const CaseSize& s) {
       const ValueId x = Float(bench, s, "x", {s.rows, s.in + 1}, 3);
       const ValueId gamma = bench.Parameter("gamma", {s.in + 1});
       return Distance(bench, bench.Apply(std::make_shared<RmsNorm>(1.0F), {x, gamma}));
     }},
    {"gated_by_silu",
     [](GraphBench& b, const CaseSize& s) { return GatedCase(b, s, ActivationKind::kSilu); }},
    {"gated_by_gelu",
     [](GraphBench& b, const CaseSize& s) { return GatedCase(b, s, ActivationKind::kGelu); }},
    {"gated_by_sigmoid",
     [](GraphBench& b, const CaseSize& s) { return GatedCase(b, s, ActivationKind::kSigmoid); }},
    {"rotary", [](GraphBench& b, const CaseSize& s) { return RotaryCase(b, s, 1); }},
    {"rotary_of_heads", [](GraphBench& b, const CaseSize& s) { return RotaryCase(b, s, 3); }},
    {"attention", [](GraphBench& b, const CaseSize& s) { return AttentionCase(b, s, false, {}); }},
    {"attention_causal",
     [](GraphBench& b, const CaseSize& s) { return AttentionCase(b, s, true, {}); }},
    {"attention_with_lengths",
     [](GraphBench& bench, const CaseSize& s) {
       const auto rows = static_cast<std::int32_t>(s.rows);
       return AttentionCase(bench, s, false, {rows, (rows + 1) / 2, 0});
     }},
    {"attention_causal_with_lengths",
     [](GraphBench& bench, const CaseSize& s) {
       const auto rows = static_cast<std::int32_t>(s.rows);
       return AttentionCase(bench, s, true, {rows / 2, rows});
     }},
    {"attention_of_all_rows",
     [](GraphBench& bench, const CaseSize& s) {
       const auto rows = static_cast<std::int32_t>(s.rows);
       return AttentionCase(bench, s, false, {rows, (rows + 1) / 2, 0}, true);
     }},
    {"attention_causal_of_all_rows",
     [](GraphBench& bench, const CaseSize& s) {
       const auto rows = static_cast<std::int32_t>(s.rows);
       return AttentionCase(bench, s, true, {(rows + 1) / 2, rows}, true);
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
    {"known_positions",
     [](GraphBench& bench, const CaseSize& s) {
       const std::int64_t texts = 3;
       const ValueId x = Float(bench, s, "x", {texts, s.rows});
       const ValueId tokens =
           bench.Ids("tokens", {texts, s.rows},
                     std::vector<std::int32_t>(static_cast<std::size_t>(texts * s.rows), 7));
       const ValueId lengths =
           bench.Ids("lengths", {texts},
                     {static_cast<std::int32_t>(s.rows), 0, static_cast<std::int32_t>(s.rows / 2)});
       ValueId y = x;
       for (const std::vector<ValueId>& of : {std::vector{tokens, lengths}, std::vector{tokens}}) {
         const ValueId known =
             bench.Apply(std::make_shared<IdFunction>(IdFunctionKind::kKnownPositions), of);
         const ValueId mask =
             bench.Apply(std::make_shared<IdFunction>(IdFunctionKind::kIdsToNumbers), {known});
         y = bench.Apply(std::make_shared<Combine>(CombineKind::kMultiply),
                         {y, CastTo(bench, s.dtype, mask)});
       }
       return Distance(bench, y);
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
    {"l2_normalize_of_short_rows",  // below eps by a factor of two or so
     [](GraphBench& bench, const CaseSize& s) {
       const ValueId x = Float(bench, s, "x", {s.rows, s.in});
       const float eps = 1.1F * std::sqrt(static_cast<float>(s.in));
       return Distance(bench, bench.Apply(std::make_shared<L2Normalize>(eps), {x}));
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
    {"prepend_row",  // a parameter of another shape, as a class token
     [](GraphBench& bench, const CaseSize& s) {
       const ValueId x = Float(bench, s, "x", {3 * s.rows, s.in});
       const ValueId row = bench.Apply(std::make_shared<Reshape>(Shape{1, s.in}),
                                       {bench.Parameter("row", {1, 1, s.in})});
       return Distance(bench, bench.Apply(std::make_shared<PrependRow>(s.rows), {x, row}));
     }},
    {"drop_first_row",
     [](GraphBench& bench, const CaseSize& s) {
       const ValueId x = Float(bench, s, "x", {3 * (s.rows + 1), s.in});
       return Distance(bench, bench.Apply(std::make_shared<DropFirstRow>(s.rows + 1), {x}));
     }},
    {"dropout",
     [](GraphBench& bench, const CaseSize& s) {
       const ValueId x = Float(bench, s, "x", {3 * s.rows, s.in});
       const ValueId ids = bench.Longs("sample_ids", {7, 1LL << 40, 0});
       const DropoutOptions options{.probability = 0.25F, .seed = 3, .layer = 5};
       return Distance(bench, bench.Apply(std::make_shared<Dropout>(options),
                                          {x, ids, bench.Longs("update", {12})}));
     }},
    {"dropout_whole_samples",
     [](GraphBench& bench, const CaseSize& s) {
       const ValueId x = Float(bench, s, "x", {8 * s.rows, s.in});
       const ValueId ids = bench.Longs("sample_ids", {7, 1LL << 40, 0, 3, 4, 5, 6, 8});
       const DropoutOptions options{
           .probability = 0.5F, .seed = 3, .layer = 5, .whole_samples = true};
       return Distance(bench, bench.Apply(std::make_shared<Dropout>(options),
                                          {x, ids, bench.Longs("update", {12})}));
     }},
    {"token_cross_entropy",
     [](GraphBench& b, const CaseSize& s) { return TokenLossCase(b, s, 0, false); }},
    {"token_cross_entropy_smoothed",
     [](GraphBench& b, const CaseSize& s) { return TokenLossCase(b, s, 0.1F, false); }},
    {"token_cross_entropy_weighted",
     [](GraphBench& b, const CaseSize& s) { return TokenLossCase(b, s, 0.3F, true); }},
};

ValueId ApplyLinear(GraphBench& bench, ValueId x, const std::string& name, std::int64_t out,
                    bool bias = true) {
  const std::int64_t in = bench.graph().value(x).spec.shape[1];
  const double limit = 1 / std::sqrt(static_cast<double>(in));
  std::vector<ValueId> inputs = {x, bench.Parameter(name + ".w", {out, in}, limit)};
  if (bias) inputs.push_back(bench.Parameter(name + ".b", {out}));
  return bench.Apply(std::make_shared<Linear>(), std::move(inputs));
}

ValueId ApplyRelu(GraphBench& bench, ValueId x) {
  return bench.Apply(std::make_shared<Relu>(), {x});
}

ValueId Sum(GraphBench& bench, ValueId a, ValueId b) {
  return bench.Apply(std::make_shared<Add>(), {a, b});
}

ValueId ApplyCrossEntropy(GraphBench& bench, ValueId z) {
  const Shape shape = bench.graph().value(z).spec.shape;
  return bench.Apply(std::make_shared<TokenCrossEntropy>(), {z, bench.Labels(shape[0], shape[1])});
}

// A parameter that is at least 0.25 away from 0, where ReLU has no derivative.
ValueId OffZero(GraphBench& bench, const Shape& shape) {
  const ValueId x = bench.Parameter("x", shape);
  for (float& value : bench.parameter("x")) value += value < 0 ? -0.25F : 0.25F;
  return x;
}

// Two uses of weights and biases of these names.
ValueId Tied(GraphBench& bench, const CaseSize& s, const std::vector<std::string>& weights,
             const std::vector<std::string>& biases) {
  std::map<std::string, ValueId> made;
  ValueId x = bench.Input("x", {s.rows, s.in});
  for (std::size_t use = 0; use < 2; ++use) {
    const std::string& w = weights[use % weights.size()];
    const std::string& b = biases[use % biases.size()];
    if (!made.contains(w)) {
      made[w] = bench.Parameter(w, {s.in, s.in}, 1 / static_cast<double>(s.in));
    }
    if (!made.contains(b)) made[b] = bench.Parameter(b, {s.in});
    x = bench.Apply(std::make_shared<Linear>(), {x, made[w], made[b]});
  }
  return Distance(bench, x);
}

const GraphCase kLayers[] = {
    {"linear_with_bias",
     [](GraphBench& bench, const CaseSize& s) {
       return Distance(bench,
                       ApplyLinear(bench, bench.Parameter("x", {s.rows, s.in}), "fc", s.out));
     }},
    {"linear_without_bias",
     [](GraphBench& bench, const CaseSize& s) {
       const ValueId x = bench.Parameter("x", {s.rows, s.in});
       return Distance(bench, ApplyLinear(bench, x, "fc", s.out, false));
     }},
    {"linear_of_linear",
     [](GraphBench& bench, const CaseSize& s) {
       const ValueId y = ApplyLinear(bench, bench.Input("x", {s.rows, s.in}), "a", s.out);
       return Distance(bench, ApplyLinear(bench, y, "b", s.in));
     }},
    {"linear_then_relu",  // one folded node
     [](GraphBench& bench, const CaseSize& s) {
       const ValueId x = bench.Input("x", {s.rows, s.in});
       return Distance(bench, ApplyRelu(bench, ApplyLinear(bench, x, "fc1", s.out)));
     }},
    {"two_layers_cross_entropy",
     [](GraphBench& bench, const CaseSize& s) {
       const ValueId x = bench.Input("x", {s.rows, s.in});
       const ValueId h = ApplyRelu(bench, ApplyLinear(bench, x, "fc1", s.in));
       return ApplyCrossEntropy(bench, ApplyLinear(bench, h, "fc2", s.out));
     }},
    {"transposed_weights",
     [](GraphBench& bench, const CaseSize& s) {
       const auto linear = std::make_shared<Linear>(false, WeightOrder::kInOut);
       const ValueId x = bench.Input("x", {s.rows, s.in});
       const double limit = 1 / std::sqrt(static_cast<double>(s.in));
       const ValueId w = bench.Parameter("w", {s.in, s.in}, limit);
       const ValueId v = bench.Parameter("v", {s.in, s.out}, limit);
       const ValueId h = bench.Apply(linear, {x, w, bench.Parameter("fc1.b", {s.in})});
       return Distance(bench, bench.Apply(linear, {ApplyRelu(bench, h), v}));
     }},
    {"residual",  // a value with two users: add, and a relu that cannot be folded
     [](GraphBench& bench, const CaseSize& s) {
       const ValueId y = ApplyLinear(bench, bench.Input("x", {s.rows, s.in}), "fc1", s.in);
       return Distance(bench, ApplyLinear(bench, Sum(bench, ApplyRelu(bench, y), y), "fc2", s.out));
     }},
    {"relu",
     [](GraphBench& bench, const CaseSize& s) {
       return Distance(bench, ApplyRelu(bench, OffZero(bench, {s.rows, s.in})));
     }},
    {"flatten",
     [](GraphBench& bench, const CaseSize& s) {
       const ValueId x = bench.Parameter("x", {s.rows, s.in, 3});
       const ValueId y = bench.Rows(x);
       return Distance(bench, ApplyLinear(bench, y, "fc", s.out));
     }},
    {"flatten_of_activation",
     [](GraphBench& bench, const CaseSize& s) {
       const ValueId y = ApplyRelu(bench, OffZero(bench, {s.rows, s.in, 3}));
       return Distance(bench, bench.Rows(y));
     }},
    {"reshape_of_parameter",
     [](GraphBench& bench, const CaseSize& s) {
       const ValueId x = bench.Parameter("x", {3, s.rows, 2, s.in});
       const Shape shape = {Reshape::kRest, s.in * 2};
       return Distance(bench, ApplyLinear(bench, bench.Apply(std::make_shared<Reshape>(shape), {x}),
                                          "fc", s.out));
     }},
    {"linear_of_sequences",  // [B, T, in] -> [B T, in] -> [B T, in] -> [B, T, in], plus x
     [](GraphBench& bench, const CaseSize& s) {
       const ValueId x = bench.Parameter("x", {s.rows, 2, s.in});
       const ValueId rows = bench.Apply(std::make_shared<Reshape>(Shape{-1, s.in}), {x});
       const ValueId y = ApplyLinear(bench, rows, "fc", s.in);
       const ValueId back = bench.Apply(std::make_shared<Reshape>(Shape{s.rows, 2, s.in}), {y});
       return Distance(bench, bench.Rows(Sum(bench, back, x)));
     }},
    {"mean_squared_error",
     [](GraphBench& bench, const CaseSize& s) {
       return Distance(bench, bench.Parameter("y", {s.rows, s.out}));
     }},
    {"add_of_parameters",  // accumulate
     [](GraphBench& bench, const CaseSize& s) {
       const ValueId a = bench.Parameter("a", {s.rows, s.in});
       return Distance(bench, Sum(bench, a, bench.Parameter("b", {s.rows, s.in})));
     }},
    {"add_of_itself",
     [](GraphBench& bench, const CaseSize& s) {
       const ValueId a = bench.Parameter("a", {s.rows, s.in});
       return Distance(bench, Sum(bench, a, a));
     }},
    {"value_with_two_users",  // a residual connection: relu(y) + y
     [](GraphBench& bench, const CaseSize& s) {
       const ValueId x = OffZero(bench, {s.rows, s.in});
       const ValueId y = Sum(bench, x, bench.Parameter("zero", {s.rows, s.in}, 0));
       return Distance(bench, Sum(bench, ApplyRelu(bench, y), y));
     }},
    {"parameter_used_twice",  // one node overwrites both gradients, one adds
     [](GraphBench& bench, const CaseSize& s) { return Tied(bench, s, {"w"}, {"b"}); }},
    {"tied_weight",  // the second node adds to the weight's gradient and overwrites the bias's
     [](GraphBench& bench, const CaseSize& s) {
       return Tied(bench, s, {"w"}, {"b1", "b2"});
     }},
    {"tied_bias",  // and the other way round
     [](GraphBench& bench, const CaseSize& s) {
       return Tied(bench, s, {"w1", "w2"}, {"b"});
     }},
};

}  // namespace

std::span<const GraphCase> SequenceCases() { return kCases; }

std::span<const GraphCase> LayerCases() { return kLayers; }

}  // namespace gaccd
