#include "daemon/train/trainer.h"

#include <array>
#include <chrono>
#include <utility>

#include "collectives/base/strings.h"
#include "daemon/data/index_source.h"
#include "daemon/data/sample_order.h"
#include "daemon/device/host_buffer.h"
#include "daemon/optim/schedule.h"
#include "daemon/train/gradient_reducer.h"
#include "daemon/train/update.h"
#include "daemon/train/weights.h"

namespace gaccd {
namespace {

// The sizes of this rank's micro-batches: at most two a plan, as they fall with the step.
void AddMicroBatches(const Plan& plan, int rank, std::set<std::int64_t>* sizes) {
  for (const std::int64_t step : {std::int64_t{0}, plan.accum_steps() - 1}) {
    const std::int64_t size = plan.MicroBatch(rank, step);
    if (size > 0) sizes->insert(size);
  }
}

Status CheckSameSpec(const SampleSpec& train, const SampleSpec& eval) {
  if (train.feature_shape == eval.feature_shape && train.classes == eval.classes &&
      train.target_width == eval.target_width) {
    return Status::Ok();
  }
  return {ErrorKind::kConfig,
          StrCat("the evaluation data differs from the training data: expected samples ",
                 ToString(train.feature_shape), " with ", train.classes, " classes or targets of ",
                 train.target_width, ", found ", ToString(eval.feature_shape), " with ",
                 eval.classes, " or ", eval.target_width)};
}

std::set<std::int64_t> EvalBatches(const EvalShard& shard, std::int64_t batch) {
  std::set<std::int64_t> sizes;
  if (shard.count >= batch) sizes.insert(batch);
  if (shard.count % batch > 0) sizes.insert(shard.count % batch);
  return sizes;
}

}  // namespace

Trainer::Trainer(Communicator& comm, const Job& job, const Plan& plan,
                 std::unique_ptr<Dataset> train, std::unique_ptr<Dataset> eval, Model model,
                 const UpdateSchedule& schedule)
    : comm_(comm),
      job_(job),
      plan_(plan),
      train_(std::move(train)),
      eval_(std::move(eval)),
      model_(std::move(model)),
      schedule_(schedule) {}

Result<std::unique_ptr<Trainer>> Trainer::Open(Communicator& comm, const Job& job,
                                               const Plan& plan) {
  GACCD_ASSIGN_OR_RETURN(auto train, OpenDataset(job.data.train, job.data.normalize));
  std::unique_ptr<Dataset> eval;
  if (job.data.eval) {
    GACCD_ASSIGN_OR_RETURN(eval, OpenDataset(*job.data.eval, job.data.normalize));
    GACCD_RETURN_IF_ERROR(CheckSameSpec(train->spec(), eval->spec()));
  }
  GACCD_ASSIGN_OR_RETURN(Model model, Model::Make(job.model, train->spec()));
  GACCD_ASSIGN_OR_RETURN(const UpdateSchedule schedule,
                         UpdateSchedule::Make({.dataset_size = train->size(),
                                               .batch = plan.effective_batch(),
                                               .epochs = job.epochs,
                                               .max_updates = job.max_updates,
                                               .last_cycle = job.batch.last_cycle}));
  GACCD_RETURN_IF_ERROR(CheckSchedule(job.schedule));
  return std::unique_ptr<Trainer>(
      new Trainer(comm, job, plan, std::move(train), std::move(eval), std::move(model), schedule));
}

Status Trainer::Prepare() {
  GACCD_ASSIGN_OR_RETURN(memory_.process, ResidentBytes());
  const auto elements = static_cast<std::size_t>(model_.layout().size());
  GACCD_ASSIGN_OR_RETURN(gradient_memory_, comm_.Allocate(elements * sizeof(float)));
  return PrepareEngine({static_cast<float*>(gradient_memory_->data()), elements});
}

Status Trainer::PrepareEngine(std::span<float> gradients) {
  ReplicaOptions options{.micro_steps_per_update = plan_.accum_steps()};
  AddMicroBatches(plan_, comm_.rank(), &options.micro_batches);
  if (schedule_.tail_samples() > 0) {
    GACCD_ASSIGN_OR_RETURN(tail_plan_, plan_.ForSamples(schedule_.tail_samples()));
    AddMicroBatches(*tail_plan_, comm_.rank(), &options.micro_batches);
  }
  if (eval_ != nullptr) {
    options.eval_batches = EvalBatches(ShardOf(eval_->size(), comm_.rank(), comm_.size()),
                                       plan_.request().micro_batch);
  }
  // The replica's buffers are not touched yet: what grows here is the code of the kernels.
  GACCD_ASSIGN_OR_RETURN(const std::int64_t before, ResidentBytes());
  GACCD_ASSIGN_OR_RETURN(replica_, Replica::Create(model_, gradients, options));
  GACCD_ASSIGN_OR_RETURN(const std::int64_t after, ResidentBytes());
  memory_.process += after - before;
  GACCD_ASSIGN_OR_RETURN(reducer_, MakeGradientReducer(comm_, model_.layout(), gradients));
  GACCD_ASSIGN_OR_RETURN(optimizer_, MakeOptimizer(job_.optimizer, model_.layout().size()));

  const SampleOrder order(job_.seed, train_->size(), job_.data.shuffle);
  GACCD_ASSIGN_OR_RETURN(TrainIndices indices,
                         TrainIndices::Make(order, schedule_, plan_, comm_.rank()));
  GACCD_ASSIGN_OR_RETURN(
      batches_, Prefetcher::Start(*train_, std::make_unique<TrainIndices>(std::move(indices))));

  model_.Initialize(job_.seed, replica_->parameters());
  memory_.planned = memory_.process + replica_->planned_bytes() +
                    static_cast<std::int64_t>(optimizer_->state().size_bytes()) +
                    static_cast<std::int64_t>(batches_->memory_bytes());
  return replica_->ParametersChanged();
}

Status Trainer::LoadWeights(const std::string& path) {
  GACCD_RETURN_IF_ERROR(LoadParameters(path, model_.layout(), replica_->parameters()));
  return replica_->ParametersChanged();
}

Status Trainer::SaveWeights(const std::string& path) {
  return SaveParameters(path, model_.layout(), replica_->parameters());
}

Status Trainer::Run(RunReporter& reporter, TrainingSummary* summary) {
  const UpdateParts parts{comm_, *replica_, *optimizer_, *batches_, ledger_, *reducer_};
  for (std::int64_t index = 0; index < schedule_.updates(); ++index) {
    const Update update = schedule_.At(index);
    const Plan& plan = update.samples == plan_.effective_batch() ? plan_ : *tail_plan_;
    const double lr = LearningRate(job_.schedule, job_.optimizer.lr, plan_.lr_factor(), index,
                                   schedule_.updates());
    auto figures = RunUpdate(parts, plan, {.lr = lr, .clip_norm = job_.clip_norm});
    if (!figures.ok()) {
      return std::move(figures).status().WithContext(StrCat("update ", index + 1));
    }
    summary->updates = index + 1;
    summary->samples += figures->samples;
    reporter.Step({.epoch = update.epoch + 1,
                   .step = summary->updates,
                   .steps_total = schedule_.updates(),
                   .samples = figures->samples,
                   .target = update.samples,
                   .samples_total = summary->samples,
                   .loss = figures->loss,
                   .grad_norm = figures->grad_norm,
                   .lr = lr,
                   .dur_s = figures->dur_s,
                   .data_s = figures->data_s,
                   .fwd_bwd_s = figures->fwd_bwd_s,
                   .reduce_s = figures->reduce_s,
                   .opt_s = figures->opt_s});
    const bool last = summary->updates == schedule_.updates();
    if (eval_ == nullptr || !(update.epoch_end || last)) continue;
    GACCD_ASSIGN_OR_RETURN(EvalRecord record, Evaluate());
    record.epoch = update.epoch + 1;
    record.step = summary->updates;
    summary->accuracy = record.accuracy;
    reporter.Eval(record);
  }
  GACCD_ASSIGN_OR_RETURN(summary->measured_memory, ResidentBytes());
  return Status::Ok();
}

Result<EvalRecord> Trainer::Evaluate() {
  const auto start = std::chrono::steady_clock::now();
  const EvalShard shard = ShardOf(eval_->size(), comm_.rank(), comm_.size());
  GACCD_ASSIGN_OR_RETURN(
      auto batches,
      Prefetcher::Start(*eval_, std::make_unique<EvalIndices>(shard, plan_.request().micro_batch)));
  // samples, loss sum, correct: counts stay exact in a double up to 2^53.
  std::array<double, 3> sums{};
  bool has_accuracy = eval_->spec().classes > 0;
  while (const BatchView* batch = batches->Next()) {
    GACCD_ASSIGN_OR_RETURN(const Evaluation result, replica_->Evaluate(*batch));
    sums[0] += static_cast<double>(result.samples);
    sums[1] += result.loss_sum;
    sums[2] += result.correct.value_or(0);
  }
  const auto view = View(std::span<double>(sums));
  GACCD_RETURN_IF_ERROR(comm_.AllReduceSum(view, view));
  EvalRecord record{.samples = static_cast<std::int64_t>(sums[0]), .loss = sums[1] / sums[0]};
  if (record.samples != eval_->size()) {
    return Status(ErrorKind::kInternal, StrCat("evaluation: expected ", eval_->size(),
                                               " samples, counted ", record.samples));
  }
  if (has_accuracy) record.accuracy = sums[2] / sums[0];
  record.dur_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return record;
}

}  // namespace gaccd
