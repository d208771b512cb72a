// What the functions refuse when they are recorded, by shape and type.
#include <gtest/gtest.h>

#include <cmath>

#include "daemon/ops/attention/attention.h"
#include "daemon/ops/attention/rotary.h"
#include "daemon/ops/layout/concat.h"
#include "daemon/ops/layout/embedding.h"
#include "daemon/ops/layout/pool_rows.h"
#include "daemon/ops/layout/prepend_row.h"
#include "daemon/ops/loss/token_cross_entropy.h"
#include "daemon/ops/norm/layer_norm.h"
#include "daemon/ops/norm/row_functions.h"
#include "daemon/ops/pointwise/activations.h"
#include "daemon/ops/pointwise/dropout.h"
#include "daemon/ops/pointwise/gated.h"
#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

void ExpectRefused(const Function& function, const std::vector<ValueSpec>& inputs,
                   const std::string& part) {
  EXPECT_THAT(function.Infer(inputs), IsError(ErrorKind::kConfig, part))
      << function.name() << " expected: " << part;
}

ValueSpec FloatSpec(Shape shape) { return {std::move(shape), DType::kF32}; }
ValueSpec IntSpec(Shape shape) { return {std::move(shape), DType::kI32}; }

TEST(RefusalsTest, Activations) {
  const Activation gelu(ActivationKind::kGelu);
  ExpectRefused(gelu, {}, "expected 1 inputs, found 0");
  ExpectRefused(gelu, {IntSpec({2})}, "expected f32, bf16 or fp16, found i32 [2]");
  ExpectRefused(ActivationGradient(ActivationKind::kGelu), {FloatSpec({2}), FloatSpec({3})},
                "expected f32 [2], found f32 [3]");
}

TEST(RefusalsTest, Attention) {
  const Attention attention({.heads = 2, .length = 4});
  ExpectRefused(attention, {}, "found 0 inputs");
  ExpectRefused(attention, {FloatSpec({6, 12})}, "qkv: expected the rows of sequences of 4 each");
  ExpectRefused(attention, {FloatSpec({8, 15})}, "3 times 2 heads divide, found [8, 15]");
  ExpectRefused(attention, {FloatSpec({8, 0})}, "3 times 2 heads divide, found [8, 0]");
  ExpectRefused(attention, {FloatSpec({8, 12}), IntSpec({3})}, "the lengths: expected i32 [2]");
  ExpectRefused(attention, {FloatSpec({8, 5}), FloatSpec({8, 5}), FloatSpec({8, 5})},
                "1 times 2 heads divide");
  ExpectRefused(attention, {FloatSpec({8, 4}), FloatSpec({8, 6}), FloatSpec({8, 4})},
                "k: expected f32 [8, 4]");
  ExpectRefused(attention, {FloatSpec({8, 4}), FloatSpec({8, 4}), FloatSpec({4, 8})},
                "v: expected f32 [8, 4]");
  ExpectRefused(Attention({.heads = 0, .length = 4}), {FloatSpec({8, 12})}, "3 times 0 heads");
  ExpectRefused(Attention({.heads = 2, .length = 0}), {FloatSpec({8, 12})}, "sequences of 0");
  const AttentionGradient gradient({.heads = 2, .length = 4});
  const ValueSpec dy = FloatSpec({8, 4});
  const ValueSpec qkv = FloatSpec({8, 12});
  ExpectRefused(gradient, {dy, dy, FloatSpec({2, 2, 4})}, "expected at least 4 inputs");
  ExpectRefused(gradient, {dy, dy, FloatSpec({16}), qkv}, "expected f32 [2, 2, 4], found f32 [16]");
  ExpectRefused(gradient, {qkv, dy, FloatSpec({2, 2, 4}), qkv},
                "the gradient: expected f32 [8, 4]");
}

TEST(RefusalsTest, Embedding) {
  const Embedding embedding;
  ExpectRefused(embedding, {FloatSpec({2}), FloatSpec({5, 3})}, "expected i32 [rows]");
  ExpectRefused(embedding, {IntSpec({2, 2, 2}), FloatSpec({5, 3})}, "found i32 [2, 2, 2]");
  ExpectRefused(embedding, {IntSpec({2}), FloatSpec({5})}, "the table");
  ExpectRefused(embedding, {IntSpec({2}), {{5, 3}, DType::kBF16}}, "of f32, found bf16 [5, 3]");
  ExpectRefused(Embedding(DType::kI32), {IntSpec({2}), FloatSpec({5, 3})}, "the output");
  ExpectRefused(EmbeddingGradient(5), {FloatSpec({3, 3}), IntSpec({2})}, "expected f32 [2, 3]");
}

TEST(RefusalsTest, Positions) {
  ExpectRefused(AddPositions(4), {FloatSpec({6, 3}), FloatSpec({4, 3})}, "sequences of 4");
  ExpectRefused(AddPositions(0), {FloatSpec({6, 3}), FloatSpec({4, 3})}, "sequences of 0");
  ExpectRefused(AddPositions(3), {FloatSpec({6, 3}), FloatSpec({2, 3})},
                "at least 3 rows of 3, found [2, 3]");
  ExpectRefused(AddPositions(3), {FloatSpec({6, 3}), FloatSpec({3, 4})},
                "at least 3 rows of 3, found [3, 4]");
}

TEST(RefusalsTest, LayerNorm) {
  const LayerNorm norm;
  ExpectRefused(norm, {FloatSpec({6, 3}), FloatSpec({3})}, "expected 3 inputs");
  ExpectRefused(norm, {FloatSpec({6}), FloatSpec({6}), FloatSpec({6})}, "the input");
  ExpectRefused(norm, {FloatSpec({6, 0}), FloatSpec({0}), FloatSpec({0})}, "at least 1 column");
  ExpectRefused(norm, {FloatSpec({6, 3}), FloatSpec({6}), FloatSpec({3})},
                "gamma: expected f32 [3]");
  ExpectRefused(norm, {FloatSpec({6, 3}), FloatSpec({3}), FloatSpec({6})},
                "beta: expected f32 [3]");
}

TEST(RefusalsTest, RmsNormGatedAndRotary) {
  const RmsNorm norm(1e-6F);
  ExpectRefused(norm, {FloatSpec({6, 3})}, "expected 2 inputs");
  ExpectRefused(norm, {FloatSpec({6, 0}), FloatSpec({0})}, "at least 1 column");
  ExpectRefused(norm, {FloatSpec({6, 3}), FloatSpec({6})}, "gamma: expected f32 [3]");
  const Gated gated(ActivationKind::kSilu);
  ExpectRefused(gated, {FloatSpec({6, 3})}, "expected 2 inputs");
  ExpectRefused(gated, {FloatSpec({6, 3}), FloatSpec({3})},
                "the second input: expected f32 [6, 3]");
  ExpectRefused(gated, {IntSpec({6}), IntSpec({6})}, "the input");
  const Rotary rotary({.length = 3, .group = 2});
  ExpectRefused(rotary, {FloatSpec({12, 4}), FloatSpec({3, 4})}, "expected 3 inputs");
  ExpectRefused(rotary, {FloatSpec({12, 3}), FloatSpec({3, 3}), FloatSpec({3, 3})},
                "an even width, found [12, 3]");
  ExpectRefused(rotary, {FloatSpec({9, 4}), FloatSpec({3, 4}), FloatSpec({3, 4})},
                "3 positions, 2 each");
  ExpectRefused(rotary, {FloatSpec({12, 4}), FloatSpec({3, 4}), FloatSpec({3, 2})},
                "the angles: expected f32 [3, 4]");
}

TEST(RefusalsTest, TokenCrossEntropy) {
  const TokenCrossEntropy loss;
  ExpectRefused(loss, {FloatSpec({6, 3})}, "expected 2 inputs, or 3 with weights, found 1");
  ExpectRefused(loss, {FloatSpec({6}), IntSpec({6})}, "the logits");
  ExpectRefused(loss, {FloatSpec({6, 0}), IntSpec({6})}, "at least 1 class");
  ExpectRefused(loss, {FloatSpec({6, 3}), FloatSpec({6})}, "the labels: expected i32 [6]");
  ExpectRefused(loss, {FloatSpec({6, 3}), IntSpec({5})}, "the labels: expected i32 [6]");
  ExpectRefused(loss, {FloatSpec({6, 3}), IntSpec({6}), FloatSpec({5})},
                "the weights: expected f32 [6]");
  ExpectRefused(TokenCrossEntropy({.label_smoothing = 1.5F}), {FloatSpec({6, 3}), IntSpec({6})},
                "[0, 1], found 1.5");
}

TEST(RefusalsTest, RowFunctions) {
  ExpectRefused(Softmax(), {FloatSpec({6})}, "the input: expected an f32, bf16 or fp16 matrix");
  ExpectRefused(Softmax(), {FloatSpec({6, 0})}, "at least 1 column");
  ExpectRefused(SoftmaxGradient(), {FloatSpec({6, 2}), FloatSpec({2, 6})},
                "the output: expected f32 [6, 2]");
  ExpectRefused(L2Normalize(), {FloatSpec({6, 0})}, "at least 1 column");
  ExpectRefused(L2Normalize(0), {FloatSpec({6, 2})}, "eps: expected a value above 0, found 0");
  ExpectRefused(L2NormalizeGradient(1), {FloatSpec({6, 2}), FloatSpec({6, 2}), FloatSpec({2})},
                "the norm");
}

TEST(RefusalsTest, Concat) {
  ExpectRefused(Concat(), {}, "expected 1 inputs, found 0");
  ExpectRefused(Concat(), {FloatSpec({6, 2}), FloatSpec({5, 2})}, "of as many rows");
  ExpectRefused(Concat(), {IntSpec({6, 2})}, "expected f32, bf16 or fp16");
}

TEST(RefusalsTest, PoolRows) {
  ExpectRefused(PoolRows(PoolKind::kMean, 4), {FloatSpec({6, 2})}, "sequences of 4");
  ExpectRefused(PoolRows(PoolKind::kMean, 3), {FloatSpec({6, 2}), IntSpec({3})}, "the lengths");
  ExpectRefused(PoolRows(PoolKind::kFirst, 3), {FloatSpec({6, 2}), IntSpec({2})},
                "expected 1 inputs");
  ExpectRefused(PoolRowsGradient(PoolKind::kMean, 0), {FloatSpec({6, 2})}, "at least 1, found 0");
}

TEST(RefusalsTest, PrependRow) {
  ExpectRefused(PrependRow(4), {FloatSpec({6, 2})}, "sequences of 4");
  ExpectRefused(PrependRow(3), {FloatSpec({6, 2}), FloatSpec({2})}, "the row: expected f32 [1, 2]");
  ExpectRefused(PrependRow(3), {FloatSpec({6, 2}), FloatSpec({1, 2}), FloatSpec({1, 2})},
                "expected 2 inputs");
  ExpectRefused(DropFirstRow(4), {FloatSpec({6, 2})}, "sequences of 4");
  ExpectRefused(DropFirstRow(1), {FloatSpec({6, 2})}, "at least 2, found 1");
}

TEST(RefusalsTest, Dropout) {
  const ValueSpec ids{{4}, DType::kI64};
  const ValueSpec update{{1}, DType::kI64};
  ExpectRefused(Dropout({}), {FloatSpec({6, 2}), ids, update}, "found i64 [4] and [6, 2]");
  ExpectRefused(Dropout({}), {FloatSpec({8, 2}), IntSpec({4}), update}, "found i32 [4] and [8, 2]");
  ExpectRefused(Dropout({}), {FloatSpec({8, 2}), ids, ids}, "the number of the update");
  for (const float p : {-0.1F, 1.0F, std::nanf("")}) {
    ExpectRefused(Dropout({.probability = p}), {FloatSpec({8, 2}), ids, update}, "[0, 1)");
  }
  ExpectRefused(Dropout({.probability = 1.1F, .uniform = true}), {FloatSpec({8, 2}), ids, update},
                "[0, 1], found 1.1");
}

}  // namespace
}  // namespace gaccd
