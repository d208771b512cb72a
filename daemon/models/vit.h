// Vit: Vision Transformer (Dosovitskiy et al. 2021): patches of the image and a class token,
// pre-norm blocks, exact GELU; then the class token, or the mean of the patches, is classified.
// Input: images, "features"; prediction: logits of the classes. Parameters have the names, shapes
// and initial values of timm's VisionTransformer with class token and learned positions.
#pragma once

#include <vector>

#include "daemon/models/network.h"
#include "daemon/nn/image_layers.h"
#include "daemon/nn/linear.h"
#include "daemon/nn/norms.h"
#include "daemon/nn/sequence_layers.h"
#include "daemon/nn/simple_layers.h"

namespace gaccd {

// patch_embed.proj, cls_token [1, 1, width] and pos_embed [1, 1 + patches, width].
class VitEmbedding final : public nn::Module {
 public:
  VitEmbedding(const nn::Scope& scope, const VitSpec& vit);
  // Images -> [B (1 + patches), width], the class token first.
  ValueId operator()(nn::Recorder& recorder, ValueId images) const;

 private:
  // A parameter as a matrix [rows, width].
  ValueId Matrix(nn::Recorder& recorder, nn::ParameterIndex index) const;

  std::int64_t width_;
  std::int64_t patches_;
  nn::ParameterIndex cls_token_;
  nn::ParameterIndex pos_embed_;
  nn::Conv2d proj_;
  nn::Dropout pos_drop_;
};

class VitBlock final : public nn::Module {
 public:
  // drop_path: the probability that a sample skips one half of the block (attention or MLP).
  VitBlock(const nn::Scope& scope, const VitSpec& vit, double drop_path);
  // x [B length, width] -> the same
  ValueId operator()(nn::Recorder& recorder, ValueId x, std::int64_t length) const;

 private:
  nn::LayerNorm norm1_;
  nn::Linear qkv_;
  nn::SelfAttention attend_;
  nn::Linear proj_;
  nn::LayerNorm norm2_;
  nn::Linear fc1_;
  nn::Activation act_;
  nn::Linear fc2_;
  nn::Dropout drop_;
  nn::DropPath drop_path_;
  nn::AddResidual add_;
};

class Vit final : public Network {
 public:
  explicit Vit(const VitSpec& spec);

  ValueId Record(nn::Recorder& recorder) const override;
  [[nodiscard]] SampleSpec ExampleSample() const override;
  [[nodiscard]] NetworkFields fields() const override { return {.outputs = "model.vit.classes"}; }
  [[nodiscard]] std::string Describe() const override;

 private:
  // The images; checks their size.
  ValueId RecordImage(nn::Recorder& recorder) const;
  // x [B length, width] -> [B, width]
  ValueId Pool(nn::Recorder& recorder, ValueId x, std::int64_t length) const;

  VitSpec spec_;
  VitEmbedding embedding_;
  std::vector<VitBlock> blocks_;
  nn::LayerNorm norm_;  // named fc_norm if the patches are averaged
  nn::Dropout head_drop_;
  nn::Linear head_;
};

}  // namespace gaccd
