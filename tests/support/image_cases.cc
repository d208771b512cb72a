#include "daemon/autograd/add.h"
#include "daemon/ops/image/channels_last.h"
#include "daemon/ops/image/conv2d.h"
#include "daemon/ops/image/pool2d.h"
#include "daemon/ops/loss/mean_squared_error.h"
#include "daemon/ops/norm/batch_norm.h"
#include "daemon/ops/norm/group_norm.h"
#include "daemon/ops/pointwise/activations.h"
#include "daemon/ops/pointwise/cast.h"
#include "daemon/ops/pointwise/combine.h"
#include "daemon/ops/pointwise/number_functions.h"
#include "tests/support/graph_cases.h"

namespace gaccd {
namespace {

// A parameter, so that the gradient can be seen: [rows, height, width, channels].
ValueId Images(GraphBench& bench, const CaseSize& s, std::int64_t height, std::int64_t width,
               double limit = 1) {
  const ValueId x = bench.Parameter("x", {s.rows, height, width, 2 * s.in}, limit);
  return s.dtype == DType::kF32 ? x : bench.Apply(std::make_shared<Cast>(s.dtype), {x});
}

ValueId DistanceOfImages(GraphBench& bench, ValueId y) {
  const ValueId flat = bench.Rows(y);
  const Shape shape = bench.graph().value(flat).spec.shape;
  return bench.Apply(std::make_shared<MeanSquaredError>(), {flat, bench.Input("targets", shape)});
}

// A kernel of 0 rows: a weight of 3 dimensions, for one row.
ValueId Convolve(GraphBench& bench, const CaseSize& s, const Conv2dOptions& options,
                 ImagePair kernel, bool bias = true) {
  Shape weight = {2 * s.out, 2 * s.in / options.groups, kernel[0], kernel[1]};
  if (kernel[0] == 0) {
    weight.erase(weight.begin() + 2);
    kernel[0] = 1;
  }
  const double limit = 1 / static_cast<double>(weight[1] * kernel[0] * kernel[1]);
  std::vector<ValueId> inputs = {Images(bench, s, 5, 4), bench.Parameter("weight", weight, limit)};
  if (bias) inputs.push_back(bench.Parameter("bias", {weight[0]}));
  return DistanceOfImages(bench, bench.Apply(std::make_shared<Conv2d>(options), std::move(inputs)));
}

// By the product of a parameter and what is one number for each result, as of weight_norm.
ValueId ConvolveByComputed(GraphBench& bench, const CaseSize& s, const Conv2dOptions& options,
                           ImagePair kernel) {
  const Shape shape = {2 * s.out, 2 * s.in / options.groups, kernel[0], kernel[1]};
  const double limit = 1 / static_cast<double>(shape[1] * kernel[0] * kernel[1]);
  const ValueId scale = bench.Parameter("scale", {2 * s.out, 1, 1, 1});
  const ValueId weight = bench.Apply(std::make_shared<Combine>(CombineKind::kMultiply),
                                     {bench.Parameter("direction", shape, limit), scale});
  return DistanceOfImages(
      bench, bench.Apply(std::make_shared<Conv2d>(options),
                         {Images(bench, s, 5, 4), weight, bench.Parameter("bias", {2 * s.out})}));
}

// Of one channel a group, whose gradient has kernels of its own for channels in multiples of 4.
ValueId ConvolveChannels(GraphBench& bench, const CaseSize& s, Conv2dOptions options,
                         ImagePair image, ImagePair kernel) {
  CaseSize more = s;
  more.in = (s.in + 1) / 2 * 2;
  options.groups = 2 * more.in;
  const double limit = 1 / static_cast<double>(kernel[0] * kernel[1]);
  const ValueId x = Images(bench, more, image[0], image[1]);
  const ValueId weight =
      bench.Parameter("weight", {options.groups, 1, kernel[0], kernel[1]}, limit);
  return DistanceOfImages(bench, bench.Apply(std::make_shared<Conv2d>(options), {x, weight}));
}

ValueId AvgPoolCase(GraphBench& bench, const CaseSize& s, const AvgPool2dOptions& options) {
  return DistanceOfImages(
      bench, bench.Apply(std::make_shared<AvgPool2d>(options), {Images(bench, s, 5, 4)}));
}

ValueId GroupNormCase(GraphBench& bench, const CaseSize& s, std::int64_t groups) {
  const ValueId x = Images(bench, s, 2, 3, 3);
  const ValueId gamma = bench.Parameter("gamma", {2 * s.in});
  const ValueId beta = bench.Parameter("beta", {2 * s.in});
  // A large eps, as with layer_norm.
  return DistanceOfImages(bench,
                          bench.Apply(std::make_shared<GroupNorm>(groups, 1.0F), {x, gamma, beta}));
}

// A run is all of an update: what its own sums are, those of the update are too. Runs: the first
// sample is the last one of the second run of 2.
// What follows the batch norm: nothing, a relu, or a sum with another value and its relu.
enum class After { kNothing, kRelu, kAddRelu };

ValueId BatchNormCase(GraphBench& bench, const CaseSize& s, NormGroup group,
                      After after = After::kNothing) {
  const ValueId x = Images(bench, s, 2, 3, 3);
  const Shape channels = {2 * s.in};
  NormRuns runs;
  std::vector<ValueId> position;
  if (group == NormGroup::kRuns) {
    runs = {.size = 2, .count = 2 + (s.rows + 2) / 2, .samples = s.rows};
    position = {bench.Longs("position", {3})};
  }
  const auto with_position = [&](std::vector<ValueId> inputs) {
    inputs.insert(inputs.end(), position.begin(), position.end());
    return inputs;
  };
  ValueId sums = bench.Apply(std::make_shared<ChannelSums>(runs), with_position({x}));
  if (group == NormGroup::kUpdate || group == NormGroup::kRuns) {
    sums = bench.Apply(std::make_shared<UpdateSum>(), {sums});
  }
  if (group == NormGroup::kNone) {
    const std::vector<float> variance(static_cast<std::size_t>(2 * s.in), 2);
    sums =
        bench.Apply(std::make_shared<FixedSums>(),
                    {bench.Input("mean", channels), bench.Input("variance", channels, variance)});
  }
  ValueId y = bench.Apply(std::make_shared<BatchNorm>(1.0F, group, runs),
                          with_position({x, sums, bench.Parameter("gamma", channels),
                                         bench.Parameter("beta", channels)}));
  if (after == After::kAddRelu) {
    const ValueId other = bench.Parameter("other", bench.graph().value(x).spec.shape);
    y = bench.Apply(std::make_shared<Add>(), {other, y});
  }
  if (after != After::kNothing) y = bench.Apply(std::make_shared<Relu>(), {y});
  return DistanceOfImages(bench, y);
}

const GraphCase kNormReluCases[] = {
    {"batch_norm_then_relu",
     [](GraphBench& b, const CaseSize& s) {
       return BatchNormCase(b, s, NormGroup::kUpdate, After::kRelu);
     }},
    {"batch_norm_of_runs_then_relu",
     [](GraphBench& b, const CaseSize& s) {
       return BatchNormCase(b, s, NormGroup::kRuns, After::kRelu);
     }},
    {"batch_norm_with_fixed_statistics_then_relu",
     [](GraphBench& b, const CaseSize& s) {
       return BatchNormCase(b, s, NormGroup::kNone, After::kRelu);
     }},
    {"batch_norm_then_add_and_relu",
     [](GraphBench& b, const CaseSize& s) {
       return BatchNormCase(b, s, NormGroup::kMicroBatch, After::kAddRelu);
     }},
};

const GraphCase kImageCases[] = {
    {"batch_norm_of_the_update",
     [](GraphBench& b, const CaseSize& s) { return BatchNormCase(b, s, NormGroup::kUpdate); }},
    {"batch_norm_of_runs",
     [](GraphBench& b, const CaseSize& s) { return BatchNormCase(b, s, NormGroup::kRuns); }},
    {"batch_norm_of_the_micro_batch",
     [](GraphBench& b, const CaseSize& s) { return BatchNormCase(b, s, NormGroup::kMicroBatch); }},
    {"batch_norm_with_fixed_statistics",
     [](GraphBench& b, const CaseSize& s) { return BatchNormCase(b, s, NormGroup::kNone); }},
    {"conv2d",
     [](GraphBench& b, const CaseSize& s) {
       return Convolve(b, s, {.padding = {1, 1}}, {3, 3});
     }},
    {"conv2d_of_a_point",
     [](GraphBench& b, const CaseSize& s) {
       return Convolve(b, s, {}, {1, 1});
     }},
    {"conv2d_of_a_point_with_stride",
     [](GraphBench& b, const CaseSize& s) {
       return Convolve(b, s, {.stride = {2, 2}}, {1, 1}, false);
     }},
    {"conv2d_in_groups",
     [](GraphBench& b, const CaseSize& s) {
       return Convolve(b, s, {.stride = {2, 1}, .padding = {1, 0}, .groups = 2}, {3, 2});
     }},
    {"conv2d_of_single_channels",
     [](GraphBench& b, const CaseSize& s) {
       CaseSize same = s;
       same.out = s.in;
       return Convolve(b, same, {.stride = {2, 1}, .padding = {1, 1}, .groups = 2 * s.in}, {3, 2});
     }},
    {"conv2d_of_channels_7x7",
     [](GraphBench& b, const CaseSize& s) {
       return ConvolveChannels(b, s, {.padding = {3, 3}}, {5, 4}, {7, 7});
     }},
    {"conv2d_of_channels_of_wide_images",  // in several strips
     [](GraphBench& b, const CaseSize& s) {
       return ConvolveChannels(b, s, {.padding = {0, 2}}, {3, 59}, {2, 7});
     }},
    {"conv2d_of_channels_7x7_with_stride",
     [](GraphBench& b, const CaseSize& s) {
       return ConvolveChannels(b, s, {.stride = {1, 2}, .padding = {3, 3}}, {3, 17}, {7, 7});
     }},
    {"conv2d_of_channels_5x5",
     [](GraphBench& b, const CaseSize& s) {
       return ConvolveChannels(b, s, {.padding = {1, 2}, .dilation = {2, 1}}, {9, 7}, {5, 5});
     }},
    {"conv2d_of_channels_5x5_with_stride",
     [](GraphBench& b, const CaseSize& s) {
       return ConvolveChannels(b, s, {.stride = {3, 2}, .padding = {2, 1}}, {4, 12}, {5, 5});
     }},
    {"conv2d_of_channels_3x3",
     [](GraphBench& b, const CaseSize& s) {
       return ConvolveChannels(b, s, {.padding = {1, 1}}, {5, 8}, {3, 3});
     }},
    {"conv2d_of_channels_3x3_with_stride",
     [](GraphBench& b, const CaseSize& s) {
       return ConvolveChannels(b, s, {.stride = {2, 2}, .padding = {1, 1}}, {5, 8}, {3, 3});
     }},
    {"conv2d_of_channels_dilated",
     [](GraphBench& b, const CaseSize& s) {
       return ConvolveChannels(b, s, {.padding = {1, 2}, .dilation = {1, 2}}, {4, 6}, {3, 3});
     }},
    {"conv2d_of_rows",
     [](GraphBench& b, const CaseSize& s) {
       return Convolve(b, s, {.stride = {1, 2}, .padding = {0, 1}}, {0, 3});
     }},
    {"conv2d_of_rows_in_groups",
     [](GraphBench& b, const CaseSize& s) {
       return Convolve(b, s, {.padding = {0, 1}, .groups = 2}, {0, 2}, false);
     }},
    {"conv2d_dilated",
     [](GraphBench& b, const CaseSize& s) {
       return Convolve(b, s, {.padding = {2, 1}, .dilation = {2, 1}}, {3, 3}, false);
     }},
    {"conv2d_by_a_computed_weight",
     [](GraphBench& b, const CaseSize& s) {
       return ConvolveByComputed(b, s, {.padding = {1, 1}}, {3, 3});
     }},
    {"conv2d_of_a_point_by_a_computed_weight",
     [](GraphBench& b, const CaseSize& s) {
       return ConvolveByComputed(b, s, {.stride = {2, 1}}, {1, 1});
     }},
    {"conv2d_in_groups_by_a_computed_weight",
     [](GraphBench& b, const CaseSize& s) {
       return ConvolveByComputed(
           b, s, {.stride = {2, 1}, .padding = {1, 2}, .dilation = {1, 2}, .groups = 2}, {3, 2});
     }},
    {"two_convolutions_of_one_weight",  // one node overwrites the gradients, the other adds
     [](GraphBench& b, const CaseSize& s) {
       const std::int64_t width = 2 * s.in;
       const ValueId w =
           b.Parameter("weight", {width, width, 3, 1}, 1.5 / static_cast<double>(width));
       const auto conv = std::make_shared<Conv2d>(Conv2dOptions{.padding = {1, 0}});
       const ValueId bias = b.Parameter("bias", {width});
       const ValueId y = b.Apply(conv, {Images(b, s, 3, 2), w, bias});
       return DistanceOfImages(b, b.Apply(conv, {y, w, bias}));
     }},
    {"channels_last_and_first",
     [](GraphBench& b, const CaseSize& s) {
       const ValueId x = Images(b, s, 3, 4);
       const ValueId first = b.Apply(std::make_shared<ChannelsFirst>(), {x});
       const auto silu = std::make_shared<Activation>(ActivationKind::kSilu);
       const ValueId y = b.Apply(std::make_shared<ChannelsLast>(), {b.Apply(silu, {first})});
       return DistanceOfImages(b, b.Rows(y));
     }},
    {"avg_pool2d",
     [](GraphBench& b, const CaseSize& s) {
       return AvgPoolCase(b, s, {.kernel = {3, 2}, .stride = {2, 1}, .padding = {1, 1}});
     }},
    {"avg_pool2d_without_padding",
     [](GraphBench& b, const CaseSize& s) {
       return AvgPoolCase(
           b, s,
           {.kernel = {3, 2}, .stride = {2, 3}, .padding = {1, 1}, .count_include_pad = false});
     }},
    {"adaptive_avg_pool2d",
     [](GraphBench& b, const CaseSize& s) {
       return DistanceOfImages(
           b, b.Apply(std::make_shared<AdaptiveAvgPool2d>(ImagePair{3, 3}), {Images(b, s, 5, 4)}));
     }},
    {"group_norm", [](GraphBench& b, const CaseSize& s) { return GroupNormCase(b, s, 2); }},
    {"group_norm_of_one_group",
     [](GraphBench& b, const CaseSize& s) { return GroupNormCase(b, s, 1); }},
    {"max_pool2d",
     [](GraphBench& b, const CaseSize& s) {
       // Values whose order no step of a difference changes.
       const ValueId x = b.Parameter("x", {s.rows, 5, 4, 2 * s.in});
       std::span<float> values = b.parameter("x");
       for (std::size_t i = 0; i < values.size(); ++i) {
         values[i] = static_cast<float>(i * 7 % 23) / 8 - 1;
       }
       const MaxPool2dOptions options{.kernel = {3, 3}, .stride = {2, 1}, .padding = {1, 1}};
       return DistanceOfImages(b, b.Apply(std::make_shared<MaxPool2d>(options), {x}));
     }},
    {"leaky_relu",
     [](GraphBench& b, const CaseSize& s) {
       const ValueId x = b.Parameter("x", {s.rows, s.in});
       for (float& value : b.parameter("x")) value += value < 0 ? -0.25F : 0.25F;
       const ValueId y =
           b.Apply(std::make_shared<NumberFunction>(NumberKind::kLeakyRelu, 0.25), {x});
       return DistanceOfImages(b, y);
     }},
};

}  // namespace

std::span<const GraphCase> ImageCases() { return kImageCases; }
std::span<const GraphCase> NormReluCases() { return kNormReluCases; }

}  // namespace gaccd
