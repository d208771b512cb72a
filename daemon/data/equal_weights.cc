#include "daemon/data/equal_weights.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#include "daemon/data/derived_dataset.h"

namespace gaccd {
namespace {

class EquallyWeighted final : public DerivedDataset {
 public:
  EquallyWeighted(std::unique_ptr<Dataset> plain, const TensorSpec& weights, std::size_t place)
      : DerivedDataset(std::move(plain)), place_(place) {
    spec_.tensors.insert(spec_.tensors.begin() + static_cast<std::ptrdiff_t>(place), weights);
  }

  void Gather(std::span<const std::int64_t> indices, const BatchView& out) const override {
    std::array<void*, kMaxTensors> others{};
    const auto end = std::ranges::copy(out.tensors.first(place_), others.begin()).out;
    std::ranges::copy(out.tensors.subspan(place_ + 1), end);
    BatchView rest = out;
    rest.tensors = std::span(others).first(out.tensors.size() - 1);
    base_->Gather(indices, rest);
    const std::int64_t bytes = std::ssize(indices) * RowBytes(spec_.tensors[place_], out.length);
    std::fill_n(out.tensor<float>(place_), static_cast<std::size_t>(bytes) / sizeof(float), 1.0F);
  }

 private:
  std::size_t place_;  // of the weights among the tensors
};

}  // namespace

std::unique_ptr<Dataset> WithEqualWeights(std::unique_ptr<Dataset> plain,
                                          const SampleSpec& weighted) {
  const auto weights = std::ranges::find(weighted.tensors, "weights", &TensorSpec::name);
  const auto place = static_cast<std::size_t>(weights - weighted.tensors.begin());
  const std::size_t last = plain->spec().tensors.size();
  return std::make_unique<EquallyWeighted>(std::move(plain), *weights, std::min(place, last));
}

}  // namespace gaccd
