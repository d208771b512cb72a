// The ops of an exported network, and how each is recorded from the functions of ops/. They mean
// what PyTorch's of the same name mean; x are values, w parameters, [..] may be left out:
//
//   relu, silu, tanh, sigmoid, hardswish(x);  gelu(x) tanh;  leaky_relu(x) slope
//   scale(x) factor                     y = factor x
//   dropout(x) p                        in training; the masks of a sample are its own
//   linear(x, w, [b]) in_out            over the last dimension; in_out: w is [in, out]
//   conv2d(x, w, [b]) stride, padding, dilation, groups
//   max_pool2d(x) kernel, stride, padding, dilation
//   avg_pool2d(x) kernel, stride, padding, count_include_pad
//   adaptive_avg_pool2d(x) output;  mean_image(x) keepdim: over height and width
//   batch_norm(x, w, b, running_mean, running_var, num_batches_tracked) eps, momentum
//                                       the statistics of the job's choice
//   group_norm(x, w, b) groups, eps;  layer_norm(x, w, b) eps: over the last dimension
//   embedding(ids, w)                   of an input of the graph
//   positions(w) size                   the first rows of w, under this shape
//   add(x, x)                           of one shape, or one of them is a parameter [.., T, W]
//   attention(q, k, v) causal           of [B, H, T, D], with the scale 1 / sqrt(D)
//   first_row(x), mean_rows(x)          [B, T, W] -> [B, W]
//   view(x) size;  permute(x) dims
//   slice(x) dim, start, end, keepdim   of a value whose three parts are q, k and v of attention
//
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
