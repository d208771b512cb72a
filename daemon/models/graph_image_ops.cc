#include <algorithm>
#include <span>

#include "collectives/base/strings.h"
#include "daemon/models/graph_ops.h"
#include "daemon/nn/norms.h"
#include "daemon/ops/image/conv2d.h"
#include "daemon/ops/image/pool2d.h"
#include "daemon/ops/norm/group_norm.h"
#include "daemon/ops/pointwise/cast.h"
#include "daemon/ops/pointwise/combine.h"

namespace gaccd {
namespace {

constexpr std::int64_t kMaxPixels = 1 << 20;  // of kernels, strides, paddings
const DimensionOrder kImages = {0, 2, 3, 1};  // [N, C, H, W] is stored as [N, H, W, C]

// The images may belong to samples or be common to all samples.
bool ExpectImages(GraphRecorder& r, const GraphValue& x) {
  const bool fits =
      x.rank() == 4 && std::ranges::all_of(std::span(x.sizes).subspan(1),
                                           [](std::int64_t size) { return size > 0; });
  return r.Expect(fits, "expected [samples, channels, height, width]", x);
}

// Input 1 in the layout of PyTorch's weight: a parameter, or a value computed from parameters.
ValueId ReadWeight(GraphRecorder& r) {
  const GraphValue weight = r.In(1);
  const bool fits =
      (weight.rank() == 3 || weight.rank() == 4) && std::ranges::min(weight.sizes) > 0;
  if (!r.Expect(fits, "expected a weight of 3 or 4 dimensions, the same for all samples", weight)) {
    return nn::kNoValue;
  }
  const ValueId id = r.Shaped(weight, RowMajor(weight.rank()));
  if (!r.ok() || r.recorder().dtype(id) == DType::kF32) return id;
  return r.Apply(std::make_shared<Cast>(DType::kF32), {id});
}

// y = f(images, [weight], parameters..).
GraphValue ByImage(GraphRecorder& r, std::shared_ptr<const Function> function,
                   bool has_weight = false) {
  const GraphValue x = r.In(0);
  if (!ExpectImages(r, x)) return {};
  const ValueId images = r.InOrder(x, kImages);
  if (!r.ok()) return {};
  Shape shape;
  for (const std::size_t dimension : kImages) {
    shape.push_back(ActualSize(x.sizes[dimension], r.recorder().samples()));
  }
  std::vector<ValueId> inputs = {r.As(images, shape)};
  if (has_weight) inputs.push_back(ReadWeight(r));
  for (std::size_t i = inputs.size(); r.Has(i); ++i) inputs.push_back(r.In(i).id);
  const ValueId y = r.Apply(std::move(function), std::move(inputs));
  if (!r.ok()) return {};
  const Shape made = r.recorder().shape(y);
  return InMemoryOrder(y, {x.sizes[0], made[3], made[1], made[2]}, kImages);
}

GraphValue RecordConv2d(GraphRecorder& r) {
  return ByImage(r,
                 std::make_shared<Conv2d>(Conv2dOptions{.stride = r.Pair("stride"),
                                                        .padding = r.Pair("padding"),
                                                        .dilation = r.Pair("dilation"),
                                                        .groups = r.Integer("groups")}),
                 /*has_weight=*/true);
}

GraphValue RecordConvTranspose2d(GraphRecorder& r) {
  const GraphValue x = r.In(0);
  if (!ExpectImages(r, x)) return {};
  const ValueId weight = ReadWeight(r);
  if (!r.ok()) return {};
  const ImagePair kernel = KernelSize(r.In(1).sizes);
  const Conv2dOptions options{.stride = r.Pair("stride"),
                              .padding = r.Pair("padding"),
                              .dilation = r.Pair("dilation"),
                              .groups = r.Integer("groups")};
  ImagePair size{};
  for (const std::size_t i : {0, 1}) {
    const bool fits = x.sizes[2 + i] > 0 && x.sizes[2 + i] <= kMaxPixels && kernel[i] <= kMaxPixels;
    if (!r.Expect(fits, StrCat("expected images of at most ", kMaxPixels, " rows"), x)) return {};
    size[i] = (x.sizes[2 + i] - 1) * options.stride[i] - 2 * options.padding[i] +
              options.dilation[i] * (kernel[i] - 1) + r.Pair("output_padding")[i] + 1;
    if (!r.Expect(size[i] > 0, "expected an image that is larger", x)) return {};
  }
  const DimensionOrder order = kImages;
  const ValueId images = r.Shaped(x, order);
  if (!r.ok()) return {};
  ValueId y = r.Apply(std::make_shared<ConvTranspose2d>(options, size), {images, weight});
  if (!r.ok()) return {};
  const std::int64_t channels = r.recorder().shape(y)[3];
  if (r.Has(2)) {
    y = r.Apply(std::make_shared<Combine>(CombineKind::kAdd),
                {y, r.As(r.In(2).id, {1, 1, 1, channels})});
  }
  return InMemoryOrder(y, {x.sizes[0], channels, size[0], size[1]}, order);
}

GraphValue RecordMaxPool(GraphRecorder& r) {
  return ByImage(r, std::make_shared<MaxPool2d>(MaxPool2dOptions{.kernel = r.Pair("kernel"),
                                                                 .stride = r.Pair("stride"),
                                                                 .padding = r.Pair("padding"),
                                                                 .dilation = r.Pair("dilation")}));
}

GraphValue RecordAvgPool(GraphRecorder& r) {
  return ByImage(r, std::make_shared<AvgPool2d>(AvgPool2dOptions{
                        .kernel = r.Pair("kernel"),
                        .stride = r.Pair("stride"),
                        .padding = r.Pair("padding"),
                        .count_include_pad = r.Integer("count_include_pad") != 0}));
}

GraphValue RecordAdaptivePool(GraphRecorder& r) {
  return ByImage(r, std::make_shared<AdaptiveAvgPool2d>(r.Pair("output")));
}

GraphValue RecordMeanImage(GraphRecorder& r) {
  GraphValue y = ByImage(r, std::make_shared<AdaptiveAvgPool2d>(ImagePair{1, 1}));
  if (!r.ok() || r.Integer("keepdim") != 0) return y;
  return *MakeView(y, {y.sizes[0], y.sizes[1]});
}

GraphValue RecordGroupNorm(GraphRecorder& r) {
  return ByImage(
      r, std::make_shared<GroupNorm>(r.Integer("groups"), static_cast<float>(r.Number("eps"))));
}

// Images, sequences and vectors are normalised as rows of channels.
GraphValue RecordBatchNorm(GraphRecorder& r) {
  const GraphValue x = r.In(0);
  if (!r.Expect(x.rank() >= 2 && x.rank() <= 4, "expected [samples, channels, ..]", x)) return {};
  const DimensionOrder order = x.rank() == 4   ? kImages
                               : x.rank() == 3 ? DimensionOrder{0, 2, 1}
                                               : RowMajor(2);
  const std::string& mean = r.InputName(kFirstBuffer);
  nn::ParameterList none;  // the parameters exist already
  const nn::BatchNorm norm(nn::Scope(none, mean.substr(0, mean.rfind('.'))),
                           {.channels = x.sizes[1],
                            .epsilon = r.Number("eps"),
                            .momentum = r.Number("momentum"),
                            .group = ToNormGroup(r.statistics().stats),
                            .run_size = r.statistics().ghost_size},
                           {.weight = r.Parameter(1),
                            .bias = r.Parameter(2),
                            .mean = r.Parameter(kFirstBuffer),
                            .variance = r.Parameter(kFirstBuffer + 1),
                            .updates = r.Parameter(kFirstBuffer + 2)});
  return InMemoryOrder(norm(r.recorder(), r.Rows(x, order, 1)), x.sizes, order);
}

GraphAttributeRule Pixels(std::string_view name, double min_value) {
  return {.name = name, .count = 2, .min_value = min_value, .max_value = kMaxPixels};
}

}  // namespace

std::vector<GraphOp> ImageOps() {
  const GraphAttributeRule groups = {.name = "groups", .min_value = 1, .max_value = kMaxPixels};
  return {
      {"conv2d",
       2,
       1,
       1,
       {Pixels("stride", 1), Pixels("padding", 0), Pixels("dilation", 1), groups},
       RecordConv2d},
      {"conv_transpose2d",
       2,
       1,
       1,
       {Pixels("stride", 1), Pixels("padding", 0), Pixels("output_padding", 0),
        Pixels("dilation", 1), groups},
       RecordConvTranspose2d},
      {"max_pool2d",
       1,
       0,
       0,
       {Pixels("kernel", 1), Pixels("stride", 1), Pixels("padding", 0), Pixels("dilation", 1)},
       RecordMaxPool},
      {"avg_pool2d",
       1,
       0,
       0,
       {Pixels("kernel", 1), Pixels("stride", 1), Pixels("padding", 0), Flag("count_include_pad")},
       RecordAvgPool},
      {"adaptive_avg_pool2d", 1, 0, 0, {Pixels("output", 1)}, RecordAdaptivePool},
      {"mean_image", 1, 0, 0, {Flag("keepdim")}, RecordMeanImage},
      {kBatchNormOp, 1, 5, 0, {Epsilon(), Real("momentum", 1e-9, 1)}, RecordBatchNorm, {1, 4}},
      {"group_norm", 1, 2, 0, {groups, Epsilon()}, RecordGroupNorm, {1}},
  };
}

}  // namespace gaccd
