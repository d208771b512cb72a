#include "daemon/models/vit.h"

#include <algorithm>

#include "collectives/base/strings.h"
#include "daemon/ops/layout/embedding.h"
#include "daemon/ops/layout/pool_rows.h"
#include "daemon/ops/layout/prepend_row.h"
#include "daemon/ops/layout/reshape.h"

namespace gaccd {
namespace {

// timm truncates initial values at +-2, 100 deviations, which has no effect.
constexpr double kWeightDeviation = 0.02;
constexpr double kTokenDeviation = 1e-6;

nn::LinearOptions Projection(std::int64_t in, std::int64_t out) {
  return {.in = in, .out = out, .deviation = kWeightDeviation};
}
nn::LayerNormOptions Norm(const VitSpec& vit) {
  return {.width = vit.width, .epsilon = vit.epsilon};
}

std::int64_t Hidden(const VitSpec& vit) {
  return static_cast<std::int64_t>(static_cast<double>(vit.width) * vit.mlp_ratio);
}

std::int64_t Patches(const VitSpec& vit) {
  const std::int64_t side = vit.image_size / vit.patch_size;
  return side * side;
}

std::vector<VitBlock> MakeBlocks(const nn::Scope& scope, const VitSpec& vit) {
  std::vector<VitBlock> blocks;
  const auto last = static_cast<double>(std::max<std::int64_t>(vit.depth - 1, 1));
  for (std::int64_t i = 0; i < vit.depth; ++i) {
    blocks.emplace_back(scope / i, vit, vit.drop_path * static_cast<double>(i) / last);
  }
  return blocks;
}

}  // namespace

VitEmbedding::VitEmbedding(const nn::Scope& scope, const VitSpec& vit)
    : Module(scope / "patch_embed"),
      width_(vit.width),
      patches_(Patches(vit)),
      cls_token_(Declare(scope, {"cls_token", {1, 1, vit.width}, nn::Normal(kTokenDeviation)})),
      pos_embed_(Declare(
          scope, {"pos_embed", {1, 1 + patches_, vit.width}, nn::Normal(kWeightDeviation)})),
      proj_(scope / "patch_embed" / "proj",
            {.in = vit.channels,
             .out = vit.width,
             .kernel = {vit.patch_size, vit.patch_size},
             .convolution = {.stride = {vit.patch_size, vit.patch_size}}}),
      pos_drop_(scope / "pos_drop", vit.dropout) {}

ValueId VitEmbedding::Matrix(nn::Recorder& recorder, nn::ParameterIndex index) const {
  return Apply(recorder, std::make_shared<Reshape>(Shape{Reshape::kRest, width_}),
               {recorder.Parameter(index)});
}

ValueId VitEmbedding::operator()(nn::Recorder& recorder, ValueId images) const {
  // Channels are last in memory, so each pixel of the output is a row: a patch.
  const ValueId patches =
      Apply(recorder, std::make_shared<Reshape>(Shape{recorder.samples() * patches_, width_}),
            {proj_(recorder, images)});
  const ValueId tokens = Apply(recorder, std::make_shared<PrependRow>(patches_),
                               {patches, Matrix(recorder, cls_token_)});
  return pos_drop_(recorder, Apply(recorder, std::make_shared<AddPositions>(1 + patches_),
                                   {tokens, Matrix(recorder, pos_embed_)}));
}

VitBlock::VitBlock(const nn::Scope& scope, const VitSpec& vit, double drop_path)
    : Module(scope),
      norm1_(scope / "norm1", Norm(vit)),
      qkv_(scope / "attn" / "qkv", Projection(vit.width, 3 * vit.width)),
      attend_(scope / "attn", {.heads = vit.heads}),
      proj_(scope / "attn" / "proj", Projection(vit.width, vit.width)),
      norm2_(scope / "norm2", Norm(vit)),
      fc1_(scope / "mlp" / "fc1", Projection(vit.width, Hidden(vit))),
      act_(scope / "mlp" / "act", ActivationKind::kGelu),
      fc2_(scope / "mlp" / "fc2", Projection(Hidden(vit), vit.width)),
      drop_(scope / "drop", vit.dropout),
      drop_path_(scope / "drop_path", drop_path),
      add_(scope) {}

ValueId VitBlock::operator()(nn::Recorder& recorder, ValueId x, std::int64_t length) const {
  const ValueId qkv = qkv_(recorder, norm1_(recorder, x));
  const ValueId attended = proj_(recorder, attend_(recorder, {qkv}, length));
  x = add_(recorder, x, drop_path_(recorder, drop_(recorder, attended)));
  const ValueId hidden = drop_(recorder, act_(recorder, fc1_(recorder, norm2_(recorder, x))));
  return add_(recorder, x, drop_path_(recorder, drop_(recorder, fc2_(recorder, hidden))));
}

Vit::Vit(const VitSpec& spec)
    : spec_(spec),
      embedding_(nn::Scope(parameters_), spec),
      blocks_(MakeBlocks(nn::Scope(parameters_, "blocks"), spec)),
      norm_(nn::Scope(parameters_, spec.pool == VitPool::kAvg ? "fc_norm" : "norm"), Norm(spec)),
      head_drop_(nn::Scope(parameters_, "head_drop"), spec.dropout),
      head_(nn::Scope(parameters_, "head"), Projection(spec.width, spec.classes)) {}

ValueId Vit::RecordImage(nn::Recorder& recorder) const {
  const ValueId images = RecordImages(recorder, spec_.channels);
  const Shape expected = {spec_.channels, spec_.image_size, spec_.image_size};
  const Shape found = recorder.SampleShape(images);
  if (found != expected) {
    recorder.Check("vit", {ErrorKind::kConfig, StrCat("expected images ", ToString(expected),
                                                      ", found ", ToString(found))});
  }
  return images;
}

// The norm after it is per row, so only pooled rows need it.
ValueId Vit::Pool(nn::Recorder& recorder, ValueId x, std::int64_t length) const {
  const auto pool = [&](PoolKind kind, std::int64_t rows, ValueId of) {
    return recorder.Apply("pool", std::make_shared<PoolRows>(kind, rows), {of});
  };
  if (spec_.pool == VitPool::kToken) return pool(PoolKind::kFirst, length, x);
  const ValueId patches = recorder.Apply("pool", std::make_shared<DropFirstRow>(length), {x});
  return pool(PoolKind::kMean, length - 1, patches);
}

ValueId Vit::Record(nn::Recorder& recorder) const {
  const std::int64_t length = 1 + Patches(spec_);
  ValueId x = embedding_(recorder, RecordImage(recorder));
  recorder.EndBlock(x);
  for (const VitBlock& block : blocks_) {
    x = block(recorder, x, length);
    recorder.EndBlock(x);
  }
  const ValueId pooled = norm_(recorder, Pool(recorder, x, length));
  return head_(recorder, head_drop_(recorder, pooled));
}

SampleSpec Vit::ExampleSample() const {
  return {
      .tensors = {{"features", DType::kF32, {spec_.channels, spec_.image_size, spec_.image_size}}}};
}

std::string Vit::Describe() const {
  return StrCat("vit, ", spec_.depth, " blocks of width ", spec_.width, ", ", spec_.heads,
                " heads, ", Patches(spec_), " patches of ", spec_.patch_size, " x ",
                spec_.patch_size);
}

}  // namespace gaccd
