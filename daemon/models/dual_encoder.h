// DualEncoder: two towers that map two tensors of a sample into a common space, as in CLIP (Radford
// et al. 2021): each ends in a projection without bias, and rows are normalised to length 1. For
// the contrastive loss (ops/loss/info_nce.h), whose scale is exp(logit_scale), a parameter f32 [1].
#pragma once

#include "daemon/models/layer_list.h"
#include "daemon/models/network.h"
#include "daemon/nn/linear.h"

namespace gaccd {

class DualEncoder final : public Network {
 public:
  explicit DualEncoder(const DualEncoderSpec& spec);

  // [samples, 2 width]: the concatenated rows of both towers.
  ValueId Record(nn::Recorder& recorder) const override;
  ValueId RecordEmbedding(nn::Recorder& recorder) const override { return Record(recorder); }
  [[nodiscard]] SampleSpec ExampleSample() const override;
  [[nodiscard]] std::optional<PairSpec> pair() const override;
  [[nodiscard]] std::string Describe() const override;

 private:
  class Tower final : public nn::Module {
   public:
    Tower(const nn::Scope& scope, const TowerSpec& spec, std::int64_t width);
    ValueId operator()(nn::Recorder& recorder) const;

    [[nodiscard]] const std::string& input() const { return input_; }
    [[nodiscard]] const LayerChain& layers() const { return layers_; }

   private:
    std::string input_;
    LayerChain layers_;
    nn::Linear projection_;
  };

  DualEncoderSpec spec_;
  Tower a_;
  Tower b_;
};

}  // namespace gaccd
