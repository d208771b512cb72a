// Data that takes its time: what makes a rank slow.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <thread>
#include <utility>

#include "daemon/data/dataset.h"
#include "tests/sanitized.h"

namespace gaccd::tests {

// What a sample takes to read. A rank hides reads behind its own computing, so those of a slow rank
// are long compared with an update of a small model on a busy machine.
inline std::chrono::microseconds ReadTime(bool slow) {
  return std::chrono::microseconds(!slow ? 500 : kSanitized ? 10'000 : 3000);
}

// Every read of a sample takes so long, and nobody's core. `reads` counts them.
class SlowData final : public Dataset {
 public:
  SlowData(std::unique_ptr<Dataset> data, std::chrono::microseconds of_sample,
           std::atomic<std::int64_t>* reads)
      : data_(std::move(data)), of_sample_(of_sample), reads_(reads) {}
  [[nodiscard]] std::int64_t size() const override { return data_->size(); }
  [[nodiscard]] const SampleSpec& spec() const override { return data_->spec(); }
  void Gather(std::span<const std::int64_t> indices, const BatchView& out) const override {
    *reads_ += std::ssize(indices);
    std::this_thread::sleep_for(of_sample_ * indices.size());
    data_->Gather(indices, out);
  }

 private:
  std::unique_ptr<Dataset> data_;
  std::chrono::microseconds of_sample_;
  std::atomic<std::int64_t>* reads_;
};

// Before every read of a batch it calls `before_read`, on the thread that reads.
class HeldData final : public Dataset {
 public:
  HeldData(const Dataset& data, std::function<void()> before_read)
      : data_(data), before_read_(std::move(before_read)) {}
  [[nodiscard]] std::int64_t size() const override { return data_.size(); }
  [[nodiscard]] const SampleSpec& spec() const override { return data_.spec(); }
  void Gather(std::span<const std::int64_t> indices, const BatchView& out) const override {
    before_read_();
    data_.Gather(indices, out);
  }

 private:
  const Dataset& data_;
  std::function<void()> before_read_;
};

}  // namespace gaccd::tests
