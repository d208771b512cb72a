// What the functions refuse when they are recorded, by shape and type.
#include <gtest/gtest.h>

#include <cmath>

#include "daemon/ops/activations.h"
#include "daemon/ops/attention.h"
#include "daemon/ops/dropout.h"
#include "daemon/ops/embedding.h"
#include "daemon/ops/gated.h"
#include "daemon/ops/join_columns.h"
#include "daemon/ops/layer_norm.h"
#include "daemon/ops/pool_rows.h"
#include "daemon/ops/prepend_row.h"
#include "daemon/ops/rms_norm.h"
#include "daemon/ops/rotary.h"
#include "daemon/ops/row_functions.h"
#include "daemon/ops/token_cross_entropy.h"
#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

void ExpectRefused(const Function& function, const std::vector<ValueSpec>& inputs,
                   const std::string& part) {
  EXPECT_THAT(function.Infer(inputs), IsError(ErrorKind::kConfig, part))
      << function.name() << " expected: " << part;
}

ValueSpec F32(Shape shape) { return {std::move(shape), DType::kF32}; }
ValueSpec I32(Shape shape) { return {std::move(shape), DType::kI32}; }

TEST(RefusalsTest, Activations) {
  const Activation gelu(ActivationKind::kGelu);
  ExpectRefused(gelu, {}, "expected 1 inputs, found 0");
  ExpectRefused(gelu, {I32({2})}, "expected f32, bf16 or fp16, found i32 [2]");
  ExpectRefused(ActivationGradient(ActivationKind::kGelu), {F32({2}), F32({3})},
                "expected f32 [2], found f32 [3]");
}

TEST(RefusalsTest, Attention) {
  const Attention attention({.heads = 2, .length = 4});
  ExpectRefused(attention, {}, "found 0 inputs");
  ExpectRefused(attention, {F32({6, 12})}, "qkv: expected the rows of sequences of 4 each");
  ExpectRefused(attention, {F32({8, 15})}, "3 times 2 heads divide, found [8, 15]");
  ExpectRefused(attention, {F32({8, 0})}, "3 times 2 heads divide, found [8, 0]");
  ExpectRefused(attention, {F32({8, 12}), I32({3})}, "the lengths: expected i32 [2]");
  ExpectRefused(attention, {F32({8, 5}), F32({8, 5}), F32({8, 5})}, "1 times 2 heads divide");
  ExpectRefused(attention, {F32({8, 4}), F32({8, 6}), F32({8, 4})}, "k: expected f32 [8, 4]");
  ExpectRefused(attention, {F32({8, 4}), F32({8, 4}), F32({4, 8})}, "v: expected f32 [8, 4]");
  ExpectRefused(Attention({.heads = 0, .length = 4}), {F32({8, 12})}, "3 times 0 heads");
  ExpectRefused(Attention({.heads = 2, .length = 0}), {F32({8, 12})}, "sequences of 0");
  const AttentionGradient gradient({.heads = 2, .length = 4});
  const ValueSpec dy = F32({8, 4});
  const ValueSpec qkv = F32({8, 12});
  ExpectRefused(gradient, {dy, dy, F32({2, 2, 4})}, "expected at least 4 inputs");
  ExpectRefused(gradient, {dy, dy, F32({16}), qkv}, "expected f32 [2, 2, 4], found f32 [16]");
  ExpectRefused(gradient, {qkv, dy, F32({2, 2, 4}), qkv}, "the gradient: expected f32 [8, 4]");
}

TEST(RefusalsTest, Embedding) {
  const Embedding embedding;
  ExpectRefused(embedding, {F32({2}), F32({5, 3})}, "expected i32 [rows]");
  ExpectRefused(embedding, {I32({2, 2, 2}), F32({5, 3})}, "found i32 [2, 2, 2]");
  ExpectRefused(embedding, {I32({2}), F32({5})}, "the table");
  ExpectRefused(embedding, {I32({2}), {{5, 3}, DType::kBF16}}, "of f32, found bf16 [5, 3]");
  ExpectRefused(Embedding(DType::kI32), {I32({2}), F32({5, 3})}, "the output");
  ExpectRefused(EmbeddingGradient(5), {F32({3, 3}), I32({2})}, "expected f32 [2, 3]");
}

TEST(RefusalsTest, Positions) {
  ExpectRefused(AddPositions(4), {F32({6, 3}), F32({4, 3})}, "sequences of 4");
  ExpectRefused(AddPositions(0), {F32({6, 3}), F32({4, 3})}, "sequences of 0");
  ExpectRefused(AddPositions(3), {F32({6, 3}), F32({2, 3})}, "at least 3 rows of 3, found [2, 3]");
  ExpectRefused(AddPositions(3), {F32({6, 3}), F32({3, 4})}, "at least 3 rows of 3, found [3, 4]");
}

TEST(RefusalsTest, LayerNorm) {
  const LayerNorm norm;
  ExpectRefused(norm, {F32({6, 3}), F32({3})}, "expected 3 inputs");
  ExpectRefused(norm, {F32({6}), F32({6}), F32({6})}, "the input");
  ExpectRefused(norm, {F32({6, 0}), F32({0}), F32({0})}, "at least 1 column");
  ExpectRefused(norm, {F32({6, 3}), F32({6}), F32({3})}, "gamma: expected f32 [3]");
  ExpectRefused(norm, {F32({6, 3}), F32({3}), F32({6})}, "beta: expected f32 [3]");
}

TEST(RefusalsTest, RmsNormGatedAndRotary) {
  const RmsNorm norm(1e-6F);
  ExpectRefused(norm, {F32({6, 3})}, "expected 2 inputs");
  ExpectRefused(norm, {F32({6, 0}), F32({0})}, "at least 1 column");
  ExpectRefused(norm, {F32({6, 3}), F32({6})}, "gamma: expected f32 [3]");
  const Gated gated(ActivationKind::kSilu);
  ExpectRefused(gated, {F32({6, 3})}, "expected 2 inputs");
  ExpectRefused(gated, {F32({6, 3}), F32({3})}, "the second input: expected f32 [6, 3]");
  ExpectRefused(gated, {I32({6}), I32({6})}, "the input");
  const Rotary rotary({.length = 3, .group = 2});
  ExpectRefused(rotary, {F32({12, 4}), F32({3, 4})}, "expected 3 inputs");
  ExpectRefused(rotary, {F32({12, 3}), F32({3, 3}), F32({3, 3})}, "an even width, found [12, 3]");
  ExpectRefused(rotary, {F32({9, 4}), F32({3, 4}), F32({3, 4})}, "3 positions, 2 each");
  ExpectRefused(rotary, {F32({12, 4}), F32({3, 4}), F32({3, 2})},
                "the angles: expected f32 [3, 4]");
}

TEST(RefusalsTest, TokenCrossEntropy) {
  const TokenCrossEntropy loss;
  ExpectRefused(loss, {F32({6, 3})}, "expected 2 inputs, or 3 with weights, found 1");
  ExpectRefused(loss, {F32({6}), I32({6})}, "the logits");
  ExpectRefused(loss, {F32({6, 0}), I32({6})}, "at least 1 class");
  ExpectRefused(loss, {F32({6, 3}), F32({6})}, "the labels: expected i32 [6]");
  ExpectRefused(loss, {F32({6, 3}), I32({5})}, "the labels: expected i32 [6]");
  ExpectRefused(loss, {F32({6, 3}), I32({6}), F32({5})}, "the weights: expected f32 [6]");
  ExpectRefused(TokenCrossEntropy({.label_smoothing = 1.5F}), {F32({6, 3}), I32({6})},
                "[0, 1], found 1.5");
}

TEST(RefusalsTest, RowFunctions) {
  ExpectRefused(Softmax(), {F32({6})}, "the input: expected an f32, bf16 or fp16 matrix");
  ExpectRefused(Softmax(), {F32({6, 0})}, "at least 1 column");
  ExpectRefused(SoftmaxGradient(), {F32({6, 2}), F32({2, 6})}, "the output: expected f32 [6, 2]");
  ExpectRefused(L2Normalize(), {F32({6, 0})}, "at least 1 column");
  ExpectRefused(L2Normalize(0), {F32({6, 2})}, "eps: expected a value above 0, found 0");
  ExpectRefused(L2NormalizeGradient(1), {F32({6, 2}), F32({6, 2}), F32({2})}, "the norm");
}

TEST(RefusalsTest, JoinColumns) {
  ExpectRefused(JoinColumns(), {F32({6, 2})}, "expected 2 inputs");
  ExpectRefused(JoinColumns(), {F32({6, 2}), F32({5, 2})}, "of as many rows");
  ExpectRefused(JoinColumnsGradient(3), {F32({6, 2})}, "at least 3 columns");
}

TEST(RefusalsTest, PoolRows) {
  ExpectRefused(PoolRows(PoolKind::kMean, 4), {F32({6, 2})}, "sequences of 4");
  ExpectRefused(PoolRows(PoolKind::kMean, 3), {F32({6, 2}), I32({3})}, "the lengths");
  ExpectRefused(PoolRows(PoolKind::kFirst, 3), {F32({6, 2}), I32({2})}, "expected 1 inputs");
  ExpectRefused(PoolRowsGradient(PoolKind::kMean, 0), {F32({6, 2})}, "at least 1, found 0");
}

TEST(RefusalsTest, PrependRow) {
  ExpectRefused(PrependRow(4), {F32({6, 2})}, "sequences of 4");
  ExpectRefused(PrependRow(3), {F32({6, 2}), F32({2})}, "the row: expected f32 [1, 2]");
  ExpectRefused(PrependRow(3), {F32({6, 2}), F32({1, 2}), F32({1, 2})}, "expected 2 inputs");
  ExpectRefused(DropFirstRow(4), {F32({6, 2})}, "sequences of 4");
  ExpectRefused(DropFirstRow(1), {F32({6, 2})}, "at least 2, found 1");
}

TEST(RefusalsTest, Dropout) {
  const ValueSpec ids{{4}, DType::kI64};
  const ValueSpec update{{1}, DType::kI64};
  ExpectRefused(Dropout({}), {F32({6, 2}), ids, update}, "found i64 [4] and [6, 2]");
  ExpectRefused(Dropout({}), {F32({8, 2}), I32({4}), update}, "found i32 [4] and [8, 2]");
  ExpectRefused(Dropout({}), {F32({8, 2}), ids, ids}, "the number of the update");
  for (const float p : {-0.1F, 1.0F, std::nanf("")}) {
    ExpectRefused(Dropout({.probability = p}), {F32({8, 2}), ids, update}, "[0, 1)");
  }
}

}  // namespace
}  // namespace gaccd
