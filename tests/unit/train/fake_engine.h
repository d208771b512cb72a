// A backend that computes nothing (a test overrides what it looks at), the engine over it, and data
// of zeros.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "daemon/data/dataset.h"
#include "daemon/engine/engine.h"

namespace gaccd::tests {

// Counts the samples of an update, as the divisor too; its loss and gradient are finite.
class FakeBackend : public Backend {
 public:
  // Every element of every buffer has a different value.
  static float ElementValue(EngineBuffer buffer, std::int64_t element) {
    return static_cast<float>(1000 * (static_cast<int>(buffer) + 1) + element);
  }

  [[nodiscard]] std::string_view device() const override { return "fake"; }
  [[nodiscard]] EngineMemory memory() const override { return {}; }
  [[nodiscard]] bool immediate() const override { return true; }
  [[nodiscard]] int held_batches() const override { return 0; }
  Result<std::byte*> HostMemory(std::size_t) override { return nullptr; }
  Status CopyIn(std::string_view, EngineBuffer, std::span<const float>) override { return {}; }
  Status CopyOut(std::string_view, EngineBuffer from, std::int64_t first,
                 std::span<float> to) override {
    for (float& value : to) value = ElementValue(from, first++);
    return {};
  }
  Status ParametersChanged() override { return {}; }
  Status ExchangeAverages() override { return {}; }
  [[nodiscard]] std::int64_t updates() const override { return 0; }
  void set_updates(std::int64_t) override {}
  [[nodiscard]] UpdateSlot Slot(std::size_t index) override {
    return {.index = index, .page = &page, .control_words = control_words};
  }
  Status Begin(const UpdateSlot&, double) override {
    page.sums = {};
    return {};
  }
  Status SetInputs(const UpdateSlot&) override { return {}; }
  Result<bool> Idle(const UpdateSlot&) override { return true; }
  Status MicroStep(const BatchView& batch, MicroStepPosition, std::int64_t = 0,
                   const float* = nullptr) override {
    page.sums.samples += static_cast<double>(batch.samples);
    page.sums.divisor += static_cast<double>(batch.samples);
    return {};
  }
  Status RunSegment(const BatchView&, std::int64_t, std::int64_t) override { return {}; }
  Status SumOverRanks(std::int64_t) override { return {}; }
  Result<UpdateSums> Sums() override { return page.sums; }
  Status SetSums(const UpdateSums& sums) override {
    page.sums = sums;
    return {};
  }
  Status Reduce(const UpdateSlot&) override { return {}; }
  Status Measure() override {
    DecideUpdate(squares, &page);
    return {};
  }
  Status Optimize(const ParameterLimit*) override { return {}; }
  Status End(const UpdateSlot&) override { return {}; }
  Result<bool> Finished(const UpdateSlot&, bool) override { return true; }
  Result<double> Seconds(const UpdateSlot&, UpdateMark, UpdateMark) override { return 1.0; }
  Status Encode(const BatchView&, std::int64_t, float*) override { return {}; }
  Result<float> FetchRows(std::span<float>) override { return 0.0F; }
  Status SetRowGradients(std::span<const float>, const ContrastiveSums&) override { return {}; }
  Status SetScaleGradient() override { return {}; }
  Result<Evaluation> Evaluate(const BatchView&) override { return Evaluation(); }

  UpdateControl page;
  std::vector<double> control_words;
  double squares = 1;  // of the gradient
};

inline const Model& ModelOfFakes() {
  static const Model model =
      Model::Make({.layer = {{"fc", LinearSpec{1, 4, true}}}, .loss = SoftmaxCrossEntropySpec{}},
                  LabelledSample({1}, 4))
          .value();
  return model;
}

// The engine of one rank; -> is its backend. Updates that are not finite are no error.
template <typename Fake = FakeBackend>
class FakeEngine {
 public:
  explicit FakeEngine(const OptimizerSpec& optimizer = {}, const Model& model = ModelOfFakes())
      : engine_(*comm_, model, {.optimizer = optimizer, .tolerate_nonfinite = true},
                BackendPtr(fake_)) {}

  operator Engine&() { return engine_; }  // NOLINT(google-explicit-constructor)
  Engine& operator*() { return engine_; }
  Fake* operator->() { return fake_; }

 private:
  std::unique_ptr<Communicator> comm_ = MakeSingle();
  Fake* fake_ = new Fake;  // the engine's
  Engine engine_;
};

// All values are 0: memory as it is found would hold an ignored label now and then.
class EmptyDataset final : public Dataset {
 public:
  explicit EmptyDataset(std::int64_t size, Status read_error = Status::Ok())
      : size_(size), read_error_(std::move(read_error)) {}
  [[nodiscard]] std::int64_t size() const override { return size_; }
  [[nodiscard]] const SampleSpec& spec() const override { return spec_; }
  [[nodiscard]] Status ReadError() const override { return read_error_; }
  void Gather(std::span<const std::int64_t>, const BatchView& to) const override {
    for (std::size_t i = 0; i < spec_.tensors.size(); ++i) {
      const std::int64_t bytes = to.samples * RowBytes(spec_.tensors[i], to.length);
      std::fill_n(to.tensor<std::byte>(i), bytes, std::byte{0});
    }
  }

 private:
  std::int64_t size_;
  Status read_error_;
  SampleSpec spec_ = LabelledSample({1}, 4);
};

}  // namespace gaccd::tests
