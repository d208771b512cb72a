#include "daemon/data/equal_weights.h"

#include <algorithm>
#include <string>
#include <utility>

#include "daemon/data/derived_dataset.h"

namespace gaccd {
namespace {

class EquallyWeighted final : public DerivedDataset {
 public:
  EquallyWeighted(std::unique_ptr<Dataset> plain, const TensorSpec& weights)
      : DerivedDataset(std::move(plain)) {
    spec_.tensors.push_back(weights);
  }

  void Gather(std::span<const std::int64_t> indices, const BatchView& out) const override {
    const std::size_t last = out.tensors.size() - 1;
    BatchView rest = out;
    rest.tensors = out.tensors.first(last);
    base_->Gather(indices, rest);
    const std::int64_t bytes = std::ssize(indices) * RowBytes(spec_.tensors[last], out.length);
    std::fill_n(out.tensor<float>(last), static_cast<std::size_t>(bytes) / sizeof(float), 1.0F);
  }
};

}  // namespace

std::unique_ptr<Dataset> WithEqualWeights(std::unique_ptr<Dataset> plain,
                                          const TensorSpec& weights) {
  return std::make_unique<EquallyWeighted>(std::move(plain), weights);
}

}  // namespace gaccd
