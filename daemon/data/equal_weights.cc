#include "daemon/data/equal_weights.h"

#include <algorithm>
#include <string>
#include <utility>

namespace gaccd {
namespace {

class EquallyWeighted final : public Dataset {
 public:
  EquallyWeighted(std::unique_ptr<Dataset> plain, const TensorSpec& weights)
      : plain_(std::move(plain)), spec_(plain_->spec()) {
    spec_.tensors.push_back(weights);
  }

  [[nodiscard]] std::int64_t size() const override { return plain_->size(); }
  [[nodiscard]] const SampleSpec& spec() const override { return spec_; }
  [[nodiscard]] std::span<const BadRecord> bad_records() const override {
    return plain_->bad_records();
  }
  [[nodiscard]] Status CheckUnchanged() const override { return plain_->CheckUnchanged(); }
  [[nodiscard]] Status ReadError() const override { return plain_->ReadError(); }
  [[nodiscard]] std::string conversions() const override { return plain_->conversions(); }
  [[nodiscard]] std::int64_t Length(std::int64_t index) const override {
    return plain_->Length(index);
  }
  [[nodiscard]] LabelCounts CountLabels(std::span<const std::int64_t> indices) const override {
    return plain_->CountLabels(indices);
  }

  void Gather(std::span<const std::int64_t> indices, const BatchView& out) const override {
    const std::size_t last = out.tensors.size() - 1;
    BatchView rest = out;
    rest.tensors = out.tensors.first(last);
    plain_->Gather(indices, rest);
    const std::int64_t bytes = std::ssize(indices) * RowBytes(spec_.tensors[last], out.length);
    std::fill_n(out.tensor<float>(last), static_cast<std::size_t>(bytes) / sizeof(float), 1.0F);
  }

 private:
  std::unique_ptr<Dataset> plain_;
  SampleSpec spec_;
};

}  // namespace

std::unique_ptr<Dataset> WithEqualWeights(std::unique_ptr<Dataset> plain,
                                          const TensorSpec& weights) {
  return std::make_unique<EquallyWeighted>(std::move(plain), weights);
}

}  // namespace gaccd
