// LayerList: the layers of a job, one after the other, from "features", or from "tokens" where the
// first is an embedding.
#pragma once

#include <span>
#include <vector>

#include "daemon/models/network.h"
#include "daemon/nn/module.h"

namespace gaccd {

class LayerList final : public Network {
 public:
  explicit LayerList(std::span<const LayerSpec> layers);

  ValueId Record(nn::Recorder& recorder) const override;
  [[nodiscard]] SampleSpec ExampleSample() const override;
  [[nodiscard]] std::string Describe() const override;

 private:
  std::vector<std::unique_ptr<const nn::Layer>> layers_;
  std::int64_t vocabulary_ = 0;  // 0: takes features
};

}  // namespace gaccd
