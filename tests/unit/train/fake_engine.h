// An engine that computes nothing (a test overrides what it looks at), and data without content.
#pragma once

#include <algorithm>

#include "daemon/data/dataset.h"
#include "daemon/engine/engine.h"

namespace gaccd::tests {

class FakeEngine : public Engine {
 public:
  [[nodiscard]] std::string_view device() const override { return "fake"; }
  [[nodiscard]] EngineMemory memory() const override { return {}; }
  Status SetParameters(std::span<const float>) override { return {}; }
  Status GetParameters(std::span<float>) override { return {}; }
  Status ChangeParameters(const std::function<Status(std::span<float>)>&) override { return {}; }
  Status SetOptimizer(std::span<const float>, std::int64_t) override { return {}; }
  Status ExchangeAverages() override { return {}; }
  Status GetGradients(std::span<float> gradients) override {
    std::ranges::fill(gradients, 0.0F);
    return {};
  }
  Result<std::uint64_t> Digest() override { return std::uint64_t{0}; }
  // Every element of every buffer has a different value.
  static float ValueOf(EngineBuffer buffer, std::int64_t element) {
    return static_cast<float>(1000 * (static_cast<int>(buffer) + 1) + element);
  }
  Status Read(EngineBuffer buffer, std::int64_t first, std::span<float> values) override {
    for (float& value : values) value = ValueOf(buffer, first++);
    return {};
  }
  [[nodiscard]] std::int64_t optimizer_updates() const override { return 0; }
  Status Begin(const UpdateSettings&) override { return {}; }
  [[nodiscard]] int held_batches() const override { return 0; }
  Status MicroStep(const BatchView&, StepPlace) override { return {}; }
  Result<WindowShare> Window() override { return WindowShare(); }
  Status SetWindow(std::span<const float>, const WindowShare&) override { return {}; }
  Status Reduce() override { return {}; }
  Status MeasureGradient() override { return {}; }
  Status Audit() override { return {}; }
  Status Optimize() override { return {}; }
  Status End() override { return {}; }
  [[nodiscard]] int updates_in_flight() const override { return 0; }
  Result<std::optional<UpdateResult>> TakeResult(bool) override {
    return std::optional(UpdateResult());
  }
  Result<double> Probe(const BatchView&) override { return 0.0; }
  Result<Evaluation> Evaluate(const BatchView&) override { return Evaluation(); }
  Result<std::byte*> HostMemory(std::size_t) override { return nullptr; }
};

class EmptyDataset final : public Dataset {
 public:
  explicit EmptyDataset(std::int64_t size) : size_(size) {}
  [[nodiscard]] std::int64_t size() const override { return size_; }
  [[nodiscard]] const SampleSpec& spec() const override { return spec_; }
  void Gather(std::span<const std::int64_t>, const BatchView&) const override {}

 private:
  std::int64_t size_;
  SampleSpec spec_ = LabelledSample({1}, 4);
};

}  // namespace gaccd::tests
