// Whole updates of 784-512-512-10 by the engine, as the trainer drives it.
#include <algorithm>
#include <array>
#include <chrono>
#include <random>
#include <vector>

#include "collectives/base/strings.h"
#include "collectives/comm/communicator.h"
#include "daemon/engine/engine.h"
#include "tools/bench/gpu/gpu_case.h"

namespace gaccd {
namespace {

constexpr std::int64_t kFeatures = 784;
constexpr std::int64_t kClasses = 10;
constexpr std::size_t kBatches = 8;  // in pinned memory, used in turn; more than any engine holds

ModelSpec Layers() {
  return {.layer = {{"fc1", LinearSpec{kFeatures, 512, true}},
                    {"relu1", ReluSpec{}},
                    {"fc2", LinearSpec{512, 512, true}},
                    {"relu2", ReluSpec{}},
                    {"fc3", LinearSpec{512, kClasses, true}}},
          .loss = SoftmaxCrossEntropySpec{}};
}

class StepCase final : public GpuCase {
 public:
  StepCase(Model model, std::int64_t micro, std::int64_t k, std::int64_t updates)
      : comm_(MakeSingle()), model_(std::move(model)), micro_(micro), k_(k), updates_(updates) {}

  Status Prepare(bool bf16) {
    EngineOptions options;
    options.replica = {.micro_batches = {micro_}, .micro_steps_per_update = k_};
    options.optimizer = {.lr = 0.01, .kind = SgdSpec{}};
    options.numerics.precision = bf16 ? Precision::kBF16 : Precision::kF32;
    options.choice = {.device = Device::kCuda, .cublaslt = CublasLtOfBench()};
    GACCD_ASSIGN_OR_RETURN(engine_, MakeEngine(*comm_, model_, options));
    std::vector<float> weights(static_cast<std::size_t>(model_.layout().size()));
    model_.Initialize(1, weights);
    GACCD_RETURN_IF_ERROR(engine_->SetParameters(weights));
    return MakeBatches();
  }

  Result<double> Run() override {
    GACCD_RETURN_IF_ERROR(Updates(std::max<std::int64_t>(3, updates_ / 10)));  // warm-up
    const auto begin = std::chrono::steady_clock::now();
    GACCD_RETURN_IF_ERROR(Updates(updates_));
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    if (!(loss_ < 3)) return Status(ErrorKind::kInternal, StrCat("the loss is ", loss_));
    return took.count() / static_cast<double>(updates_ * k_);
  }
  [[nodiscard]] double proof() const override { return loss_; }

 private:
  Status MakeBatches() {
    const auto features = static_cast<std::size_t>(micro_ * kFeatures);
    const std::size_t bytes = (features + static_cast<std::size_t>(micro_)) * 4;
    std::mt19937 random(1);
    for (std::size_t b = 0; b < kBatches; ++b) {
      GACCD_ASSIGN_OR_RETURN(std::byte * memory, engine_->HostMemory(bytes));
      if (memory == nullptr) return {ErrorKind::kInternal, "the engine has no memory for batches"};
      tensors_[b] = {memory, memory + features * 4};
      const BatchView& batch = batches_[b] = {.samples = micro_, .tensors = tensors_[b]};
      for (std::size_t i = 0; i < features; ++i) {
        batch.tensor<float>(0)[i] = static_cast<float>(random()) * 0x1p-31F - 1;
      }
      for (std::int64_t i = 0; i < micro_; ++i) {
        batch.tensor<std::int32_t>(1)[i] = static_cast<std::int32_t>(random() % kClasses);
      }
    }
    return Status::Ok();
  }

  // So many updates, the figures read one or more later, as the trainer does; all of them at the
  // end.
  Status Updates(std::int64_t count) {
    for (std::int64_t update = 0; update < count; ++update) {
      GACCD_RETURN_IF_ERROR(engine_->Begin({.samples = k_ * micro_, .lr = 0.01}));
      for (std::int64_t step = 0; step < k_; ++step) {
        GACCD_RETURN_IF_ERROR(engine_->MicroStep(batches_[next_++ % kBatches],
                                                 {.first = step == 0, .last = step + 1 == k_}));
      }
      GACCD_RETURN_IF_ERROR(engine_->Reduce());
      GACCD_RETURN_IF_ERROR(engine_->MeasureGradient());
      GACCD_RETURN_IF_ERROR(engine_->Audit());
      GACCD_RETURN_IF_ERROR(engine_->Optimize());
      GACCD_RETURN_IF_ERROR(engine_->End());
      ++in_flight_;
      GACCD_RETURN_IF_ERROR(ReadFigures(update + 1 == count ? 0 : engine_->updates_in_flight()));
    }
    return Status::Ok();
  }

  // Takes figures until so many updates are left in_flight.
  Status ReadFigures(int left) {
    for (; in_flight_ > left; --in_flight_) {
      GACCD_ASSIGN_OR_RETURN(const auto figures, engine_->TakeResult(/*wait=*/true));
      if (!figures.has_value()) return {ErrorKind::kInternal, "an update is lost"};
      loss_ = figures->loss;
    }
    return Status::Ok();
  }

  std::unique_ptr<Communicator> comm_;
  Model model_;
  std::int64_t micro_;
  std::int64_t k_;
  std::int64_t updates_;
  std::unique_ptr<Engine> engine_;
  std::array<void*, 2> tensors_[kBatches];
  BatchView batches_[kBatches];
  std::size_t next_ = 0;
  int in_flight_ = 0;
  double loss_ = 0;
};

}  // namespace

MadeCase MakeStepCase(const CaseArguments& arguments) {
  GACCD_ASSIGN_OR_RETURN(const std::int64_t micro, arguments.Count("micro"));
  GACCD_ASSIGN_OR_RETURN(const std::int64_t k, arguments.Count("k"));
  GACCD_ASSIGN_OR_RETURN(const std::int64_t updates, arguments.Count("updates"));
  GACCD_ASSIGN_OR_RETURN(const bool bf16, arguments.Either("precision", "f32", "bf16"));
  GACCD_ASSIGN_OR_RETURN(Model model, Model::Make(Layers(), LabelledSample({kFeatures}, kClasses)));
  auto made = std::make_unique<StepCase>(std::move(model), micro, k, updates);
  GACCD_RETURN_IF_ERROR(made->Prepare(bf16));
  return CasePtr(std::move(made));
}

}  // namespace gaccd
