// The ops of an exported network, and how each is recorded from the functions of ops/. They mean
// what PyTorch's of the same name mean; x are values, w parameters, [..] may be left out:
//
//   relu, silu, tanh, sigmoid, hardswish(x);  gelu(x) tanh;  leaky_relu(x) slope
//   scale(x) factor, shift(x) amount    y = factor x, y = x + amount
//   power(x) exponent;  exp(x), log(x), sin(x), cos(x), erf(x), hardsigmoid(x)
//   root(x)                             power of 0.5 whose gradient at 0 is 0: of norms
//   clamp(x), hardtanh(x) least, most   they differ in the gradient at the limits
//   equal(x) to, less(x) than           1 where x is that, else 0
//   numbers(ids)                        the ids of an input as numbers
//   dropout(x) p, drop_samples(x) p     in training; the masks of a sample are its own, of x
//   without
//                                       samples one mask for each update
//   linear(x, w, [b]) in_out            over the last dimension; in_out: w is [in, out]
//                                       (numbers stay f32 where w is a constant)
//   conv2d(x, x, [b]) stride, padding, dilation, groups; the weight [O, I, K] is [O, I, 1, K]
//   max_pool2d(x) kernel, stride, padding, dilation
//   avg_pool2d(x) kernel, stride, padding, count_include_pad
//   conv_transpose2d(x, x, [b]) stride, padding, output_padding, dilation, groups; likewise
//   adaptive_avg_pool2d(x) output;  mean_image(x) keepdim: over height and width
//   batch_norm(x, w, b, running_mean, running_var, num_batches_tracked) eps, momentum
//                                       the statistics of the job's choice
//   group_norm(x, w, b) groups, eps;  layer_norm(x, w, b) eps: over the last dimension
//   rms_norm(x, w) eps                  over the last dimension
//   silu_mul, sigmoid_mul(x, x);  gelu_mul(x, x) tanh: y = f(x_1) x_2
//   embedding(ids, x)                   of an input of the graph, or of numbers that are whole
//   embedding_with_padding(ids, x) padding_idx: the row without a gradient
//   positions(w) size                   the first rows of w, under this shape
//   add(x, x), mul(x, x)                sizes of 1 are repeated
//   select(x, mask)                     x where the mask is not 0, else 0; likewise
//   sum(x), mean(x) dims, keepdim;  softmax(x): over the last dimension
//   matmul(x, x) transpose              of the last two dimensions, the second's transposed
//   cat(x, ..) dim                      in f32 where all x are
//   attention(q, k, v) causal           of [B, H, T, D], with the scale 1 / sqrt(D)
//   masked_attention(q, k, v, mask) causal
//                                       of the keys with mask [B, T] != 0, an input of the graph
//   rotary(x, cos, sin)                 of x [.., T, D] with constants [T, D]
//   first_row(x), mean_rows(x)          [B, T, W] -> [B, W]
//   view(x) size;  permute(x) dims
//   slice(x) dim, start, end, keepdim;  take(x) dim, start, count, step
//   repeat(x) size                      sizes of 1 become these;  pad(x) before, after: with 0
//
// A parameter or constant may be in the place of a value.
// Attributes of images are two integers, flags 0 or 1.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "daemon/config/job.h"
#include "daemon/models/graph_recorder.h"

namespace gaccd {

struct GraphAttributeRule {
  std::string_view name;
  std::int64_t count = 1;  // of integers; 0: any number of them; -1: one real number
  double least = 0;
  double most = 0;
};

struct GraphOp {
  std::string_view name;
  std::size_t values = 1;      // its first inputs, which are x
  std::size_t parameters = 0;  // its last inputs, which are w
  std::size_t optional = 0;    // how many of these may be left out, from the end
  std::vector<GraphAttributeRule> attributes;
  GraphValue (*record)(GraphRecorder& recorder);
  std::vector<std::size_t> ones = {};  // inputs that are 1 in a new model; others are random or 0
  bool many = false;                   // any number of values, at least `values`
};

// Null: no such op.
[[nodiscard]] const GraphOp* FindGraphOp(std::string_view name);

// Inputs [first, first + count) of a batch norm are changed by it alone.
inline constexpr std::string_view kBatchNormOp = "batch_norm";
inline constexpr std::size_t kFirstBuffer = 3;

// kConfig, without the node: an unknown op, another number of inputs, attributes that are missing,
// unknown or out of range.
Status CheckGraphNode(const GraphNode& node);

}  // namespace gaccd
