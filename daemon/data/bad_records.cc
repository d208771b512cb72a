#include "daemon/data/bad_records.h"

#include <algorithm>
#include <array>
#include <utility>

#include "collectives/base/strings.h"
#include "daemon/tensor/random.h"

namespace gaccd {
namespace {

// A view of a data set that maps sample numbers.
class SkippingDataset : public DerivedDataset {
 public:
  SkippingDataset(std::unique_ptr<Dataset> base, std::vector<BadRecord> bad)
      : DerivedDataset(std::move(base)), bad_(std::move(bad)) {}

  [[nodiscard]] std::span<const BadRecord> bad_records() const override { return bad_; }
  [[nodiscard]] std::int64_t Length(std::int64_t index) const override {
    return base_->Length(ReplacementFor(index));
  }

  [[nodiscard]] LabelCounts CountLabels(std::span<const std::int64_t> indices) const override {
    std::vector<std::int64_t> good;
    for (const std::int64_t index : indices) good.push_back(ReplacementFor(index));
    return base_->CountLabels(good);
  }

  void Gather(std::span<const std::int64_t> indices, const BatchView& out) const override {
    constexpr std::size_t kPart = 64;
    std::array<std::int64_t, kPart> good{};
    std::array<void*, kMaxTensors> memory{};
    for (std::size_t at = 0; at < indices.size(); at += kPart) {
      const std::size_t count = std::min(kPart, indices.size() - at);
      for (std::size_t i = 0; i < count; ++i) good[i] = ReplacementFor(indices[at + i]);
      base_->Gather(std::span(good).first(count), Rows(spec(), out, at, count, memory));
    }
  }

 private:
  [[nodiscard]] virtual std::int64_t ReplacementFor(std::int64_t sample) const = 0;

  std::vector<BadRecord> bad_;  // by sample
};

class ReplacingDataset final : public SkippingDataset {
 public:
  using SkippingDataset::SkippingDataset;

 private:
  [[nodiscard]] std::int64_t ReplacementFor(std::int64_t sample) const override {
    const auto found = std::ranges::lower_bound(bad_records(), sample, {}, &BadRecord::sample);
    return found != bad_records().end() && found->sample == sample ? found->replacement : sample;
  }
};

class SmallerDataset final : public SkippingDataset {
 public:
  SmallerDataset(std::unique_ptr<Dataset> base, std::vector<BadRecord> bad)
      : SkippingDataset(std::move(base), std::move(bad)) {
    for (const BadRecord& record : bad_records()) {
      good_before_.push_back(record.sample - std::ssize(good_before_));
    }
  }

  [[nodiscard]] std::int64_t size() const override {
    return SkippingDataset::size() - std::ssize(good_before_);
  }

 private:
  [[nodiscard]] std::int64_t ReplacementFor(std::int64_t sample) const override {
    return sample + (std::ranges::upper_bound(good_before_, sample) - good_before_.begin());
  }

  std::vector<std::int64_t> good_before_;  // number of good samples before each bad one
};

}  // namespace

Status BadRecords::Add(std::int64_t sample, Status damage) {
  if (rules_.policy == OnBadRecord::kStop) return damage;
  found_.try_emplace(sample, damage.message());
  if (std::ssize(found_) + rules_.used <= rules_.quota) return Status::Ok();
  return {ErrorKind::kData, StrCat("damaged records: at most ", rules_.quota,
                                   " may be skipped, found one more: ", damage.message())};
}

std::vector<BadRecord> BadRecords::Records(std::int64_t samples) const {
  std::vector<BadRecord> bad;
  for (const auto& [sample, why] : found_) {
    bad.push_back({.sample = sample, .why = why});
    if (rules_.leave_out) continue;
    const std::uint64_t key = Mix64(rules_.seed ^ Mix64(static_cast<std::uint64_t>(sample)));
    std::int64_t other = sample;
    for (std::uint64_t draw = 0; found_.contains(other); ++draw) {
      other = static_cast<std::int64_t>(Mix64(key + draw) % static_cast<std::uint64_t>(samples));
    }
    bad.back().replacement = other;
  }
  return bad;
}

Result<std::unique_ptr<Dataset>> BadRecords::Skip(std::unique_ptr<Dataset> dataset) && {
  if (found_.empty()) return dataset;
  if (std::ssize(found_) >= dataset->size()) {
    return Status(ErrorKind::kData, StrCat("all ", dataset->size(),
                                           " records are damaged: ", found_.begin()->second));
  }
  std::vector<BadRecord> bad = Records(dataset->size());
  std::unique_ptr<Dataset> rest;
  if (rules_.leave_out) {
    rest = std::make_unique<SmallerDataset>(std::move(dataset), std::move(bad));
  } else {
    rest = std::make_unique<ReplacingDataset>(std::move(dataset), std::move(bad));
  }
  return rest;
}

}  // namespace gaccd
