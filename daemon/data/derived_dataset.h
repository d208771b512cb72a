// DerivedDataset: a data set that changes some properties of another one.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "daemon/data/dataset.h"

namespace gaccd {

class DerivedDataset : public Dataset {
 public:
  [[nodiscard]] std::int64_t size() const override { return base_->size(); }
  [[nodiscard]] const SampleSpec& spec() const final { return spec_; }
  [[nodiscard]] std::span<const BadRecord> bad_records() const override {
    return base_->bad_records();
  }
  [[nodiscard]] Status CheckUnchanged() const final { return base_->CheckUnchanged(); }
  [[nodiscard]] Status ReadError() const final { return base_->ReadError(); }
  [[nodiscard]] std::string conversions() const final { return base_->conversions(); }
  [[nodiscard]] std::optional<bool> has_integer_features() const final {
    return base_->has_integer_features();
  }
  [[nodiscard]] std::int64_t gather_bytes() const override { return base_->gather_bytes(); }
  [[nodiscard]] std::int64_t Length(std::int64_t index) const override {
    return base_->Length(index);
  }
  [[nodiscard]] LabelCounts CountLabels(std::span<const std::int64_t> indices) const override {
    return base_->CountLabels(indices);
  }

 protected:
  explicit DerivedDataset(std::unique_ptr<Dataset> base)
      : base_(std::move(base)), spec_(base_->spec()) {}

  const std::unique_ptr<Dataset> base_;
  SampleSpec spec_;  // initially that of the base; changed by constructors only
};

}  // namespace gaccd
