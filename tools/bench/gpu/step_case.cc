// Whole updates of a model by the engine, as the trainer drives it.
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <random>
#include <vector>

#include "collectives/base/strings.h"
#include "collectives/comm/communicator.h"
#include "daemon/engine/engine.h"
#include "tools/bench/gpu/gpu_case.h"

namespace gaccd {
namespace {

constexpr std::size_t kBatches = 8;  // in pinned memory, used in turn; more than any engine holds

ModelSpec Mlp() {
  return {.layer = {{"fc1", LinearSpec{784, 512, true}},
                    {"relu1", ReluSpec{}},
                    {"fc2", LinearSpec{512, 512, true}},
                    {"relu2", ReluSpec{}},
                    {"fc3", LinearSpec{512, 10, true}}},
          .loss = SoftmaxCrossEntropySpec{}};
}

// Of the words vocabulary=, context=, layers=, heads= and width=.
template <typename Spec>
Result<ModelSpec> Transformer(const CaseArguments& arguments) {
  Spec spec;
  GACCD_ASSIGN_OR_RETURN(spec.vocabulary, arguments.Count("vocabulary"));
  GACCD_ASSIGN_OR_RETURN(spec.context, arguments.Count("context"));
  GACCD_ASSIGN_OR_RETURN(spec.layers, arguments.Count("layers"));
  GACCD_ASSIGN_OR_RETURN(spec.heads, arguments.Count("heads"));
  GACCD_ASSIGN_OR_RETURN(spec.width, arguments.Count("width"));
  return ModelSpec{.loss = SoftmaxCrossEntropySpec{}, .architecture = spec};
}

Result<ModelSpec> MakeModelSpec(const CaseArguments& arguments) {
  const std::string model = arguments.Text("model");
  if (model == "mlp") return Mlp();
  if (model == "gpt") return Transformer<GptSpec>(arguments);
  if (model == "bert") return Transformer<BertSpec>(arguments);
  return Status(ErrorKind::kUsage, StrCat("model: expected mlp, gpt or bert, found '", model, "'"));
}

class StepCase final : public GpuCase {
 public:
  StepCase(Model model, std::int64_t micro, std::int64_t k, std::int64_t updates)
      : comm_(MakeSingle()), model_(std::move(model)), micro_(micro), k_(k), updates_(updates) {}

  // `optimizer`: with its learning rate.
  Status Prepare(bool bf16, bool timed, const OptimizerSpec& optimizer) {
    EngineOptions options;
    options.replica = {.micro_batches = {micro_}, .micro_steps_per_update = k_};
    options.optimizer = optimizer;
    options.numerics.precision = bf16 ? Precision::kBF16 : Precision::kF32;
    options.choice = {
        .device = Device::kCuda, .time_algorithms = timed, .cublaslt = CublasLtOfBench()};
    if (bf16) {
      GACCD_ASSIGN_OR_RETURN(options.choice.dnn, DnnOfBench());
    }
    lr_ = optimizer.lr;
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
    const double first = std::log(static_cast<double>(model_.sample().classes));
    if (!(loss_ < 1.3 * first)) {
      return Status(ErrorKind::kInternal,
                    StrCat("the loss: expected less than ", 1.3 * first, ", found ", loss_));
    }
    return took.count() / static_cast<double>(updates_ * k_);
  }
  [[nodiscard]] double proof() const override { return loss_; }

 private:
  // Random values, tokens and labels.
  Status MakeBatches() {
    const SampleSpec& sample = model_.sample();
    std::int64_t bytes = 0;
    for (const TensorSpec& tensor : sample.tensors) bytes += micro_ * tensor.bytes();
    std::mt19937 random(1);
    for (std::size_t b = 0; b < kBatches; ++b) {
      GACCD_ASSIGN_OR_RETURN(std::byte * memory,
                             engine_->HostMemory(static_cast<std::size_t>(bytes)));
      if (memory == nullptr) return {ErrorKind::kInternal, "the engine has no memory for batches"};
      for (const TensorSpec& tensor : sample.tensors) {
        tensors_[b].push_back(memory);
        const std::int64_t elements = micro_ * tensor.elements();
        const std::int64_t below = tensor.name == "tokens" ? sample.vocabulary : sample.classes;
        for (std::int64_t i = 0; i < elements; ++i) {
          if (tensor.dtype == DType::kF32) {
            reinterpret_cast<float*>(memory)[i] = static_cast<float>(random()) * 0x1p-31F - 1;
          } else {
            reinterpret_cast<std::int32_t*>(memory)[i] =
                static_cast<std::int32_t>(random() % static_cast<std::uint64_t>(below));
          }
        }
        memory += micro_ * tensor.bytes();
      }
      batches_[b] = {.samples = micro_, .tensors = tensors_[b]};
    }
    return Status::Ok();
  }

  // So many updates, the figures read one or more later, as the trainer does; all of them at the
  // end.
  Status Updates(std::int64_t count) {
    for (std::int64_t update = 0; update < count; ++update) {
      GACCD_RETURN_IF_ERROR(engine_->Begin({.samples = k_ * micro_, .lr = lr_}));
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
      GACCD_ASSIGN_OR_RETURN(const auto figures, engine_->PopResult(/*wait=*/true));
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
  double lr_ = 0;
  std::array<std::vector<void*>, kBatches> tensors_;
  std::array<BatchView, kBatches> batches_;
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
  GACCD_ASSIGN_OR_RETURN(const bool timed, arguments.Either("choice", "first", "timed"));
  GACCD_ASSIGN_OR_RETURN(const ModelSpec spec, MakeModelSpec(arguments));
  GACCD_ASSIGN_OR_RETURN(Model model, Model::MakeWithoutData(spec));
  auto made = std::make_unique<StepCase>(std::move(model), micro, k, updates);
  const bool mlp = arguments.Text("model") == "mlp";
  GACCD_RETURN_IF_ERROR(made->Prepare(bf16, timed,
                                      mlp ? OptimizerSpec{.lr = 0.01, .kind = SgdSpec{}}
                                          : OptimizerSpec{.lr = 3e-4, .kind = AdamWSpec{}}));
  return CasePtr(std::move(made));
}

}  // namespace gaccd
