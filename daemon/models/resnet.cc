#include "daemon/models/resnet.h"

#include <cmath>

#include "collectives/base/strings.h"
#include "daemon/models/norm_group.h"
#include "daemon/nn/norms.h"

namespace gaccd {
namespace {

constexpr std::int64_t kExpansion = 4;  // of a bottleneck

bool IsSmall(const ResnetSpec& spec) { return spec.stem == ResnetStem::kSmall; }

std::int64_t OutputWidth(const ResnetSpec& spec, std::int64_t width) {
  return spec.block == ResnetBlock::kBottleneck ? kExpansion * width : width;
}

// Sets the blocks from `depth`, unless they are given.
ResnetSpec WithBlocks(ResnetSpec spec) {
  if (!spec.blocks.empty()) return spec;
  spec.blocks = spec.depth == 18 ? std::vector<std::int64_t>{2, 2, 2, 2}
                                 : std::vector<std::int64_t>{3, 4, 6, 3};
  spec.block = spec.depth == 50 ? ResnetBlock::kBottleneck : ResnetBlock::kBasic;
  return spec;
}

std::shared_ptr<const nn::Layer> MakeNorm(const nn::Scope& scope, const ResnetSpec& spec,
                                          std::int64_t channels) {
  if (spec.groups > 0) {
    return std::make_shared<nn::GroupNorm>(
        scope, nn::GroupNormOptions{.groups = spec.groups, .channels = channels});
  }
  return std::make_shared<nn::BatchNorm>(
      scope,
      nn::BatchNormOptions{
          .channels = channels, .group = ToNormGroup(spec.stats), .run_size = spec.ghost_size});
}

// Kaiming normal initialisation with fan out, as in torchvision.
nn::Conv2dModuleOptions ConvOptions(const ConvNorm::Size& size) {
  const auto fan_out = static_cast<double>(size.out * size.kernel * size.kernel);
  const std::int64_t padding = size.kernel / 2;
  return {.in = size.in,
          .out = size.out,
          .kernel = {size.kernel, size.kernel},
          .convolution = {.stride = {size.stride, size.stride}, .padding = {padding, padding}},
          .bias = false,
          .deviation = std::sqrt(2 / fan_out)};
}

ConvNorm Stem(const nn::Scope& scope, const ResnetSpec& spec) {
  const std::int64_t kernel = IsSmall(spec) ? 3 : 7;
  return {
      scope / "conv1",
      scope / "bn1",
      spec,
      {.in = spec.channels, .out = spec.width, .kernel = kernel, .stride = IsSmall(spec) ? 1 : 2}};
}

std::vector<ResnetBlockModule> Blocks(const nn::Scope& scope, const ResnetSpec& spec) {
  std::vector<ResnetBlockModule> blocks;
  std::int64_t in = spec.width;
  std::int64_t width = spec.width;
  for (std::size_t stage = 0; stage < spec.blocks.size(); ++stage, width *= 2) {
    const nn::Scope of_stage = scope / StrCat("layer", stage + 1);
    for (std::int64_t i = 0; i < spec.blocks[stage]; ++i) {
      blocks.emplace_back(of_stage / i, spec, in, width, i == 0 && stage > 0 ? 2 : 1);
      in = OutputWidth(spec, width);
    }
  }
  return blocks;
}

std::int64_t LastWidth(const ResnetSpec& spec) {
  return OutputWidth(spec, spec.width << (spec.blocks.size() - 1));
}

}  // namespace

ConvNorm::ConvNorm(const nn::Scope& conv, const nn::Scope& norm, const ResnetSpec& spec,
                   const Size& size)
    : Module(conv), conv_(conv, ConvOptions(size)), norm_(MakeNorm(norm, spec, size.out)) {}

ResnetBlockModule::ResnetBlockModule(const nn::Scope& scope, const ResnetSpec& spec,
                                     std::int64_t in, std::int64_t width, std::int64_t stride)
    : Module(scope), relu_(scope), add_(scope) {
  const std::int64_t out = OutputWidth(spec, width);
  const auto add = [&](const ConvNorm::Size& size) {
    const auto number = convolutions_.size() + 1;
    convolutions_.emplace_back(scope / StrCat("conv", number), scope / StrCat("bn", number), spec,
                               size);
  };
  if (spec.block == ResnetBlock::kBottleneck) {
    add({.in = in, .out = width});
    add({.in = width, .out = width, .kernel = 3, .stride = stride});
    add({.in = width, .out = out});
  } else {
    add({.in = in, .out = width, .kernel = 3, .stride = stride});
    add({.in = width, .out = out, .kernel = 3});
  }
  if (in == out && stride == 1) return;
  const nn::Scope downsample = scope / "downsample";
  downsample_.emplace(downsample / 0, downsample / 1, spec,
                      ConvNorm::Size{.in = in, .out = out, .stride = stride});
}

ValueId ResnetBlockModule::operator()(nn::Recorder& recorder, ValueId x) const {
  ValueId y = x;
  for (const ConvNorm& convolution : convolutions_) {
    y = convolution(recorder, y);
    if (&convolution != &convolutions_.back()) y = relu_(recorder, y);
  }
  return relu_(recorder, add_(recorder, y, downsample_ ? (*downsample_)(recorder, x) : x));
}

Resnet::Resnet(const ResnetSpec& spec)
    : spec_(WithBlocks(spec)),
      stem_(Stem(nn::Scope(parameters_), spec_)),
      relu_(nn::Scope(parameters_, "relu")),
      max_pool_(nn::Scope(parameters_, "maxpool"),
                std::make_shared<MaxPool2d>(
                    MaxPool2dOptions{.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}})),
      blocks_(Blocks(nn::Scope(parameters_), spec_)),
      mean_(nn::Scope(parameters_, "avgpool"),
            std::make_shared<AdaptiveAvgPool2d>(ImagePair{1, 1})),
      flatten_(nn::Scope(parameters_, "flatten")),
      fc_(nn::Scope(parameters_, "fc"), {.in = LastWidth(spec_), .out = spec_.classes}) {}

ValueId Resnet::Record(nn::Recorder& recorder) const {
  ValueId x = relu_(recorder, stem_(recorder, RecordImages(recorder, spec_.channels)));
  if (!IsSmall(spec_)) x = max_pool_(recorder, x);
  recorder.EndBlock(x);
  for (const ResnetBlockModule& block : blocks_) {
    x = block(recorder, x);
    recorder.EndBlock(x);
  }
  return fc_(recorder, flatten_(recorder, mean_(recorder, x)));
}

SampleSpec Resnet::ExampleSample() const {
  const std::int64_t side = IsSmall(spec_) ? 32 : 224;
  return {.tensors = {{"features", DType::kF32, {spec_.channels, side, side}}}};
}

std::string Resnet::Describe() const {
  return StrCat("resnet, ", Join(spec_.blocks, " "),
                spec_.block == ResnetBlock::kBottleneck ? " bottlenecks" : " basic blocks",
                " of width ", spec_.width);
}

}  // namespace gaccd
