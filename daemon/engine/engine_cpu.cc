#include <algorithm>
#include <utility>
#include <vector>

#include "collectives/base/strings.h"
#include "collectives/bucket/bucket_reducer.h"
#include "daemon/accum/sample_ledger.h"
#include "daemon/config/job_checks.h"
#include "daemon/device/host_buffer.h"
#include "daemon/engine/contrastive_window.h"
#include "daemon/engine/engine.h"
#include "daemon/engine/engine_checks.h"
#include "daemon/engine/gradient_reducer.h"
#include "daemon/engine/lap_timer.h"
#include "daemon/optim/digest.h"
#include "daemon/optim/norm.h"
#include "daemon/optim/optimizer.h"

namespace gaccd {
namespace {

class CpuEngine final : public Engine {
 public:
  CpuEngine(Communicator& comm, const Model& model) : comm_(comm), model_(model) {}

  Status Create(const EngineOptions& options);

  [[nodiscard]] std::string_view device() const override { return "cpu"; }
  [[nodiscard]] EngineMemory memory() const override {
    return {.host_bytes = replica_->planned_bytes() +
                          static_cast<std::int64_t>(optimizer_->state().size_bytes()) +
                          (contrastive_ ? contrastive_->planned_bytes() : 0),
            .process_bytes = process_bytes_};
  }

  Status SetParameters(std::span<const float> parameters) override;
  Status ChangeParameters(const std::function<Status(std::span<float>)>& change) override;
  Status GetParameters(std::span<float> parameters) override;
  Status SetOptimizer(std::span<const float> state, std::int64_t updates) override;
  Status ExchangeAverages() override {
    const bool changed = optimizer_->ExchangeAverages(replica_->parameters());
    return changed ? replica_->ParametersChanged() : Status::Ok();
  }
  Status GetGradients(std::span<float> gradients) override;
  Result<std::uint64_t> Digest() override { return DigestOf(replica_->parameters()); }
  Status Read(EngineBuffer buffer, std::int64_t first, std::span<float> out) override;
  [[nodiscard]] std::int64_t optimizer_updates() const override { return optimizer_->updates(); }

  Status Begin(const UpdateSettings& settings) override;
  [[nodiscard]] int held_batches() const override { return 0; }
  [[nodiscard]] int updates_in_flight() const override { return 0; }
  Status Encode(const BatchView& batch) override;
  Status ComputeContrastiveLoss() override;
  Status MicroStep(const BatchView& batch, StepPlace place) override;
  Result<WindowShare> Window() override {
    return WindowShare{.samples = ledger_.counted(), .loss_sum = sums_[0], .divisor = sums_[1]};
  }
  Status SetWindow(std::span<const float> gradients, const WindowShare& share) override;
  Status Reduce() override;
  Status MeasureGradient() override;
  Status Audit() override;
  Status Optimize() override;
  Status End() override;
  Result<std::optional<UpdateResult>> TakeResult(bool wait) override;

  Result<double> Probe(const BatchView& batch) override;
  Result<Evaluation> Evaluate(const BatchView& batch) override { return replica_->Evaluate(batch); }
  Result<std::byte*> HostMemory(std::size_t /*bytes*/) override { return nullptr; }

 private:
  [[nodiscard]] float& parameter(std::int64_t element) {
    return replica_->parameters()[static_cast<std::size_t>(element)];
  }
  Status ContrastiveLossOver(Communicator& comm);
  void AddScaleGradient();
  [[nodiscard]] std::span<double> control_words() { return std::span(sums_).subspan(3); }

  Communicator& comm_;
  const Model& model_;
  std::unique_ptr<CommMemory> gradient_memory_;
  std::unique_ptr<Replica> replica_;
  std::optional<BucketReducer> reducer_;
  std::optional<ContrastiveWindow> contrastive_;
  HostBuffer state_memory_;
  std::unique_ptr<Optimizer> optimizer_;
  SampleLedger ledger_;
  std::int64_t process_bytes_ = 0;
  bool tolerate_nonfinite_ = false;

  // Of the update that is under way.
  UpdateSettings settings_;
  double weight_ = 0;      // 1/N, of a prediction
  double correction_ = 1;  // N/D, from Reduce() on
  // Loss sum, divisor, samples, control words: of this rank, from Reduce() on of all. Counts are
  // exact in a double up to 2^53.
  std::vector<double> sums_;
  Status finite_;   // or why its loss and gradient cannot be used
  Status counted_;  // or which ranks counted other samples than the plan
  UpdateResult result_;
  LapTimer timer_;
  // Of the update that is done.
  bool finished_ = false;
  Status verdict_;
};

Status CpuEngine::Create(const EngineOptions& options) {
  const auto elements = static_cast<std::size_t>(model_.layout().size());
  GACCD_ASSIGN_OR_RETURN(gradient_memory_, comm_.Allocate(elements * sizeof(float)));
  const std::span gradients(static_cast<float*>(gradient_memory_->data()), elements);
  GACCD_ASSIGN_OR_RETURN(replica_, Replica::Create(model_, gradients, options.replica,
                                                   options.numerics.precision, &comm_));
  if (options.measure_process) {  // no buffer is used yet, but shared gradients were zeroed
    GACCD_ASSIGN_OR_RETURN(process_bytes_, ResidentBytes());
    process_bytes_ -= ResidentBytesOf(std::as_bytes(gradients));
  }
  if (const auto loss = model_.contrastive()) {
    contrastive_.emplace(*loss, options.replica.effective_batch, options.replica.rank_samples);
  }
  // Nothing is sent during the backward pass here: one message.
  GACCD_ASSIGN_OR_RETURN(reducer_,
                         MakeGradientReducer(comm_, model_.layout(), View(gradients), kOneBucket));
  OptimizerRanges ranges = OptimizerRanges::Of(model_.layout());
  const auto state = static_cast<std::size_t>(StateElements(options.optimizer, ranges.elements()));
  GACCD_ASSIGN_OR_RETURN(state_memory_,
                         HostBuffer::Allocate(state * sizeof(float), "optimiser state"));
  GACCD_ASSIGN_OR_RETURN(optimizer_,
                         MakeOptimizer(options.optimizer, std::move(ranges),
                                       {reinterpret_cast<float*>(state_memory_.data()), state}));
  sums_.resize(3 + options.control_word_count);
  tolerate_nonfinite_ = options.tolerate_nonfinite;
  return Status::Ok();
}

Status CpuEngine::SetParameters(std::span<const float> parameters) {
  return ChangeParameters([parameters](std::span<float> own) {
    GACCD_RETURN_IF_ERROR(CheckCount("parameters", own.size(), parameters.size()));
    std::ranges::copy(parameters, own.begin());
    return Status::Ok();
  });
}

Status CpuEngine::ChangeParameters(const std::function<Status(std::span<float>)>& change) {
  GACCD_RETURN_IF_ERROR(change(replica_->parameters()));
  return replica_->ParametersChanged();
}

Status CpuEngine::GetParameters(std::span<float> parameters) {
  GACCD_RETURN_IF_ERROR(CheckCount("parameters", replica_->parameters().size(), parameters.size()));
  std::ranges::copy(replica_->parameters(), parameters.begin());
  return Status::Ok();
}

Status CpuEngine::SetOptimizer(std::span<const float> state, std::int64_t updates) {
  GACCD_RETURN_IF_ERROR(CheckCount("optimiser state", optimizer_->state().size(), state.size()));
  std::ranges::copy(state, optimizer_->state().begin());
  optimizer_->set_updates(updates);
  return Status::Ok();
}

Status CpuEngine::GetGradients(std::span<float> gradients) {
  GACCD_RETURN_IF_ERROR(CheckCount("gradients", replica_->gradients().size(), gradients.size()));
  std::ranges::transform(replica_->gradients(), gradients.begin(), [this](float gradient) {
    return static_cast<float>(gradient * correction_);
  });
  return Status::Ok();
}

Status CpuEngine::Read(EngineBuffer buffer, std::int64_t first, std::span<float> out) {
  const std::span<const float> all = buffer == EngineBuffer::kParameters  ? replica_->parameters()
                                     : buffer == EngineBuffer::kOptimizer ? optimizer_->state()
                                                                          : replica_->gradients();
  GACCD_RETURN_IF_ERROR(CheckRange(first, out.size(), all.size()));
  std::ranges::copy(all.subspan(static_cast<std::size_t>(first), out.size()), out.begin());
  return Status::Ok();
}

Status CpuEngine::Begin(const UpdateSettings& settings) {
  if (finished_) return ResultNotTaken();
  GACCD_RETURN_IF_ERROR(
      CheckCount("control words", control_words().size(), settings.control_words.size()));
  GACCD_ASSIGN_OR_RETURN(weight_, InverseCount(settings.samples * model_.predictions()));
  settings_ = settings;
  replica_->SetUpdate(settings.update);
  result_ = {};
  correction_ = 1;
  sums_[0] = sums_[1] = 0;
  if (contrastive_) contrastive_->Begin();
  (void)timer_.Lap();
  return Status::Ok();
}

Status CpuEngine::Encode(const BatchView& batch) {
  if (!contrastive_) return Engine::Encode(batch);
  result_.data_s += timer_.Lap();
  GACCD_RETURN_IF_ERROR(replica_->Encode(batch, contrastive_->Append(batch.samples)));
  result_.fwd_bwd_s += timer_.Lap();
  return Status::Ok();
}

Status CpuEngine::ComputeContrastiveLoss() {
  if (!contrastive_) return Engine::ComputeContrastiveLoss();
  GACCD_RETURN_IF_ERROR(ContrastiveLossOver(comm_));
  sums_[0] = contrastive_->sums().loss;
  result_.fwd_bwd_s += timer_.Lap();
  return Status::Ok();
}

Status CpuEngine::ContrastiveLossOver(Communicator& comm) {
  return contrastive_->ComputeContrastiveLoss(comm,
                                              double{parameter(contrastive_->model().log_scale)});
}

// Of the own samples: the reduction adds those of the others.
void CpuEngine::AddScaleGradient() {
  const ContrastiveModel& model = contrastive_->model();
  if (!model.learns_scale) return;
  replica_->gradients()[static_cast<std::size_t>(model.log_scale)] =
      static_cast<float>(contrastive_->sums().log_scale_gradient);
}

Status CpuEngine::MicroStep(const BatchView& batch, StepPlace place) {
  result_.data_s += timer_.Lap();
  if (contrastive_) {
    GACCD_ASSIGN_OR_RETURN(const float* gradients, contrastive_->Next(batch.samples));
    GACCD_RETURN_IF_ERROR(replica_->Replay(batch, gradients, place.first));
    if (place.last) AddScaleGradient();
    sums_[1] += static_cast<double>(batch.samples);
  } else {
    GACCD_ASSIGN_OR_RETURN(const LossSums sums,
                           replica_->MicroStep(batch, static_cast<float>(weight_), place.first));
    sums_[0] += sums.loss_sum;
    sums_[1] += sums.divisor;
  }
  ledger_.Add(batch.samples);
  result_.fwd_bwd_s += timer_.Lap();
  return Status::Ok();
}

Status CpuEngine::SetWindow(std::span<const float> gradients, const WindowShare& share) {
  GACCD_RETURN_IF_ERROR(CheckCount("accumulators", replica_->gradients().size(), gradients.size()));
  std::ranges::copy(gradients, replica_->gradients().begin());
  sums_[0] = share.loss_sum;
  sums_[1] = share.divisor;
  ledger_.Add(share.samples - ledger_.counted());
  return Status::Ok();
}

Status CpuEngine::Reduce() {
  GACCD_RETURN_IF_ERROR(reducer_->ReduceAll());
  sums_[2] = static_cast<double>(ledger_.counted());
  std::ranges::copy(settings_.control_words, control_words().begin());
  const auto view = View(std::span(sums_));
  GACCD_RETURN_IF_ERROR(comm_.AllReduceSum(view, view));
  result_.divisor = sums_[1];
  result_.loss = sums_[0] / sums_[1];
  correction_ =
      DivisorCorrection(static_cast<double>(settings_.samples * model_.predictions()), sums_[1]);
  result_.control_words = control_words();
  result_.reduce_s = timer_.Lap();
  return Status::Ok();
}

Status CpuEngine::MeasureGradient() {
  const GradientNorm gradient = GlobalNorm(replica_->gradients());
  finite_ = CheckFinite(result_.loss, gradient.finite, result_.divisor);
  result_.grad_norm = gradient.norm * correction_;
  return Status::Ok();
}

Status CpuEngine::Audit() {
  counted_ = ledger_.Audit(comm_, static_cast<std::int64_t>(sums_[2]), settings_.samples);
  return Status::Ok();
}

Status CpuEngine::Optimize() {
  if (!finite_.ok() || !counted_.ok()) return Status::Ok();
  optimizer_->Step(
      replica_->parameters(), replica_->gradients(), settings_.lr,
      static_cast<float>(correction_ * ClipFactor(result_.grad_norm, settings_.clip_norm)),
      [this](std::int64_t end) { replica_->ParametersChangedUpTo(end); });
  if (contrastive_) {  // as CLIP: after the step
    float& scale = parameter(contrastive_->model().log_scale);
    scale = std::min(scale, static_cast<float>(contrastive_->max_log_scale()));
  }
  optimizer_->Average(replica_->parameters());
  return replica_->ParametersChanged();
}

Status CpuEngine::End() {
  GACCD_RETURN_IF_ERROR(reducer_->NextCycle());
  // A wrong count explains more than its result.
  verdict_ = counted_;
  if (verdict_.ok() && !tolerate_nonfinite_) verdict_ = finite_;
  result_.finite = finite_.ok();
  result_.samples = settings_.samples;
  result_.opt_s = timer_.Lap();
  result_.dur_s = result_.data_s + result_.fwd_bwd_s + result_.reduce_s + result_.opt_s;
  finished_ = true;
  return Status::Ok();
}

// Of a contrastive loss: against the other samples of the micro-batch.
Result<double> CpuEngine::Probe(const BatchView& batch) {
  GACCD_RETURN_IF_ERROR(CheckProbe(model_));
  if (!contrastive_) {
    GACCD_ASSIGN_OR_RETURN(const LossSums sums,
                           replica_->MicroStep(batch, static_cast<float>(weight_), /*first=*/true));
    return sums.loss_sum;
  }
  contrastive_->Begin();
  GACCD_RETURN_IF_ERROR(replica_->Encode(batch, contrastive_->Append(batch.samples)));
  const std::unique_ptr<Communicator> alone = MakeSingle();
  GACCD_RETURN_IF_ERROR(ContrastiveLossOver(*alone));
  GACCD_ASSIGN_OR_RETURN(const float* gradients, contrastive_->Next(batch.samples));
  GACCD_RETURN_IF_ERROR(replica_->Replay(batch, gradients, /*first=*/true));
  AddScaleGradient();
  return contrastive_->sums().loss;
}

Result<std::optional<UpdateResult>> CpuEngine::TakeResult(bool /*wait*/) {
  if (!finished_) return std::optional<UpdateResult>();
  finished_ = false;
  GACCD_RETURN_IF_ERROR(verdict_);
  return std::optional(result_);
}

}  // namespace

Result<std::unique_ptr<Engine>> MakeCpuEngine(Communicator& comm, const Model& model,
                                              const EngineOptions& options) {
  // Nothing is replaced by another kind of arithmetic in silence.
  GACCD_RETURN_IF_ERROR(CheckNumericsOfCpu(options.numerics, "this engine runs on CPUs"));
  auto engine = std::make_unique<CpuEngine>(comm, model);
  GACCD_RETURN_IF_ERROR(engine->Create(options));
  return std::unique_ptr<Engine>(std::move(engine));
}

}  // namespace gaccd
