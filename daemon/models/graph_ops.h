// The ops of an exported network, and how each is recorded with the functions of ops/. They are
// defined as PyTorch's of the same name; x are values, w parameters, [..] is optional:
//
//   relu, silu, tanh, sigmoid, hardswish(x);  gelu(x) tanh;  leaky_relu(x) slope
//   scale(x) factor, shift(x) amount    y = factor x, y = x + amount
//   power(x) exponent;  exp, expm1, log, log1p, softplus, sin, cos, erf, erfc, hardsigmoid(x)
//   root(x)                             square root with gradient 0 at 0, for norms
//   floor(x)                            without a gradient
//   clamp(x), hardtanh(x) least, most   differ in the gradient at the limits
//   equal(x) to, less(x) than           1 where true, else 0
//   numbers(ids)                        the ids of an input as f32
//   dropout(x) p, drop_samples(x) p     in training; each sample has its own mask, an x without
//                                       samples one mask for each update
//   uniform_noise(x) p                  likewise x m, with m uniform in (1 - p, 1 + p)
//   detach(x)                           x, without a gradient
//   linear(x, w, [b]) in_out            over the last dimension; in_out: w is [in, out]
//                                       (x stays f32 if w is a constant)
//   conv2d(x, x, [b]) stride, padding, dilation, groups; the weight [O, I, K] is [O, I, 1, K]
//   max_pool2d(x) kernel, stride, padding, dilation
//   avg_pool2d(x) kernel, stride, padding, count_include_pad
//   conv_transpose2d(x, x, [b]) stride, padding, output_padding, dilation, groups; same weight
//   adaptive_avg_pool2d(x) output;  mean_image(x) keepdim: over height and width
//   batch_norm(x, w, b, running_mean, running_var, num_batches_tracked) eps, momentum
//                                       statistics as chosen by the job
//   group_norm(x, w, b) groups, eps;  layer_norm(x, w, b) eps: over the last dimension
//   rms_norm(x, w) eps                  over the last dimension
//   silu_mul, sigmoid_mul(x, x);  gelu_mul(x, x) tanh: y = f(x_1) x_2
//   embedding(ids, x)                   ids: an input of the graph, or integers as f32
//   embedding_with_padding(ids, x) padding_idx: the row without a gradient
//   positions(w) size                   the first rows of w, with this shape
//   add, mul, div(x, x)                 sizes of 1 are repeated
//   select(x, mask)                     x where the mask is not 0, else 0; sizes as for add
//   sum(x), mean(x) dims, keepdim;  softmax(x): over the last dimension
//   matmul(x, x) transpose              of the last two dimensions, the second's transposed
//   cat(x, ..) dim                      f32 if all x are
//   attention(q, k, v) causal           of [B, H, T, D], with the scale 1 / sqrt(D)
//   masked_attention(q, k, v, mask) causal
//                                       only keys with mask [B, T] != 0
//   rotary(x, cos, sin)                 of x [.., T, D] with constants [T, D]
//   first_row(x), mean_rows(x)          [B, T, W] -> [B, W]
//   view(x) size;  permute(x) dims
//   slice(x) dim, start, end, keepdim;  take(x) dim, start, count, step
//   repeat(x) size                      repeats sizes of 1;  pad(x) before, after: with 0
//
// A parameter or constant may be used as a value. Attributes of images are two integers; flags are
// 0 or 1.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "daemon/config/job.h"
#include "daemon/models/graph_recorder.h"

namespace gaccd {

struct GraphAttributeRule {
  std::string_view name;
  std::int64_t count = 1;  // number of integers; 0: any; -1: one real number
  double min_value = 0;
  double max_value = 0;
};

struct GraphOp {
  std::string_view name;
  std::size_t values = 1;      // number of first inputs, which are x
  std::size_t parameters = 0;  // number of last inputs, which are w
  std::size_t optional = 0;    // how many of these may be omitted, from the end
  std::vector<GraphAttributeRule> attributes;
  GraphValue (*record)(GraphRecorder& recorder);
  std::vector<std::size_t> ones = {};  // inputs whose initial values are 1
  bool many = false;                   // any number of values, at least `values`
};

// Null if there is no such op.
[[nodiscard]] const GraphOp* FindGraphOp(std::string_view name);

// Inputs of a batch norm from kFirstBuffer on are buffers, which only it changes.
inline constexpr std::string_view kBatchNormOp = "batch_norm";
inline constexpr std::size_t kFirstBuffer = 3;

// kConfig, without the name of the node, for an unknown op, a wrong number of inputs, and
// attributes that are missing, unknown or out of range.
Status CheckGraphNode(const GraphNode& node);

// The ops of graph_ops.h by family, one file each.
[[nodiscard]] std::vector<GraphOp> ValueOps();     // elementwise, and over the last dimension
[[nodiscard]] std::vector<GraphOp> ImageOps();     // also batch norm
[[nodiscard]] std::vector<GraphOp> SequenceOps();  // embeddings, attention
[[nodiscard]] std::vector<GraphOp> LayoutOps();
[[nodiscard]] std::vector<GraphOp> NumberOps();   // elementwise with constant numbers
[[nodiscard]] std::vector<GraphOp> ProductOps();  // of two values with broadcast, sums, matmul

// Rules for attributes.
[[nodiscard]] constexpr GraphAttributeRule Flag(std::string_view name) {
  return {.name = name, .max_value = 1};
}
[[nodiscard]] constexpr GraphAttributeRule Real(std::string_view name, double min_value,
                                                double max_value) {
  return {.name = name, .count = -1, .min_value = min_value, .max_value = max_value};
}
[[nodiscard]] constexpr GraphAttributeRule AnyIntegers(std::string_view name) {
  return {.name = name, .count = 0};
}
[[nodiscard]] constexpr GraphAttributeRule Epsilon() { return Real("eps", 1e-30, 1); }

}  // namespace gaccd
