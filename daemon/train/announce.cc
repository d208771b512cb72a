// TrainingRun: messages at the begin and the end of a run.
#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/base/strings.h"
#include "collectives/bootstrap/mpi_session.h"
#include "daemon/config/job_text.h"
#include "daemon/config/make_plan.h"
#include "daemon/config/revision.h"
#include "daemon/launch/device_choice.h"
#include "daemon/plan/plan_text.h"
#include "daemon/telemetry/event_lines.h"
#include "daemon/telemetry/log.h"
#include "daemon/tensor/group_rules.h"
#include "daemon/train/run_options.h"
#include "daemon/train/start_warnings.h"
#include "daemon/train/training_run.h"

namespace gaccd {
namespace {

// Mean over the samples, each cut as if it were alone.
double MeanFlops(const Model& model, const Dataset& data) {
  const std::vector<std::int64_t>& cuts = model.sample().cuts;
  if (cuts.empty()) return model.FlopsPerSample();
  std::vector<double> flops;
  for (const std::int64_t cut : cuts) flops.push_back(model.FlopsPerSample(cut));
  flops.push_back(model.FlopsPerSample());
  double sum = 0;
  for (std::int64_t i = 0; i < data.size(); ++i) {
    const auto cut = std::ranges::lower_bound(cuts, data.Length(i)) - cuts.begin();
    sum += flops[static_cast<std::size_t>(cut)];
  }
  return sum / static_cast<double>(data.size());
}

double MeanLength(const Dataset& data) {
  double sum = 0;
  for (std::int64_t i = 0; i < data.size(); ++i) sum += static_cast<double>(data.Length(i));
  return sum / static_cast<double>(data.size());
}

void WarnAboutPadding(std::string_view name, const LabelCounts& labels, const Dataset& data) {
  if (labels.padded == 0) return;
  LogWarning(StrCat(labels.padded, " of ", data.size(), " ", name,
                    " samples have labels behind their length, which count in the loss: expected ",
                    data.spec().ignored_label, " there"));
}

// "best loss 0.2500 after update 16; w.safetensors has the last weights, after update 24".
std::string BestText(const Flags& flags, const Job& job, const BestValue& best,
                     std::int64_t updates) {
  std::string text =
      StrCat("best ", MetricsText(std::array{MetricValue{best.metric, best.value}}, " "),
             " after update ", best.step);
  const bool last = best.step == updates;
  if (flags.save_weights) {
    text += StrCat("; ", *flags.save_weights, " has ",
                   last ? "these weights" : StrCat("the last weights, after update ", updates));
  }
  const bool kept = flags.run_dir && job.evaluation.keep_best && MakeSavePolicy(flags).on();
  if (!kept || last) return text;
  // Its save may have failed, or it may be a checkpoint of the run from which this one continued.
  const std::string folder = MakeCheckpointOptions(flags, job).folder;
  return StrCat(text, HasBest(folder, best.step)
                          ? "; eval, predict and ckpt export use its checkpoint with --best"
                          : StrCat("; no checkpoint in '", folder, "' has its weights"));
}

// What the data is read as, and the samples that do not count.
void AnnounceData(const Trainer& trainer, int rank, RunReporter& reporter) {
  const Dataset& data = *trainer.data().train;
  const Dataset* eval = trainer.data().eval.get();
  const std::string converted = data.conversions();
  if (!converted.empty()) reporter.LogAndPrint(StrCat("converted while reading: ", converted));
  if (eval != nullptr && eval->conversions() != converted && !eval->conversions().empty()) {
    reporter.LogAndPrint(StrCat("and of the evaluation data: ", eval->conversions()));
  }
  if (const auto& cuts = trainer.model().sample().cuts; !cuts.empty() && rank == 0) {
    reporter.LogAndPrint(StrCat("micro-batches are grouped by length and cut to multiples of ",
                                cuts.front(), " tokens; mean length ",
                                std::lround(MeanLength(data))));
  }
  if (const std::int64_t without = trainer.labels().unlabelled; without > 0) {
    reporter.LogAndPrint(StrCat(without, " of ", data.size(),
                                " training samples have no label that counts; an update of such "
                                "samples alone is skipped"));
  }
  if (const auto bad = data.bad_records(); !bad.empty()) {
    reporter.LogAndPrint(StrCat("damaged records: ", bad.size(), " of ", data.size(),
                                " are replaced by others; the first: ", bad.front().why));
  }
  if (eval != nullptr && !eval->bad_records().empty()) {
    const auto bad = eval->bad_records();
    reporter.LogAndPrint(StrCat("damaged records: ", bad.size(),
                                " are excluded from the evaluation, ", eval->size(),
                                " remain; the first: ", bad.front().why));
  }
}

}  // namespace

RunStart TrainingRun::StartRecord() const {
  const SlurmEnvironment& slurm = session_.ranks.slurm;
  const DeviceChoice& device = session_.device;
  const TrainingData& data = trainer_->data();
  RunStart start{.version = GaccdVersion(),
                 .git = GaccdRevision(),
                 .mpi = comm_.size() > 1 ? MpiVersion() : "",
                 .comm = std::string(session_.device_comm().name()),
                 .nodes = comm_.topology().nodes,
                 .world = comm_.size(),
                 .partition = slurm.partition,
                 .account = slurm.account,
                 .nodelist = slurm.nodelist,
                 .config_sha = JobDigest(job_, flags_),
                 .model = trainer_->model().Describe(),
                 .parameters = trainer_->model().layout().parameters(),
                 .memory_planned_bytes = trainer_->memory().planned,
                 .train_samples = data.train->size(),
                 .eval_samples = data.eval ? data.eval->size() : 0,
                 .device = std::string(Name(device.device)),
                 .device_reason = device.text,
                 .precision = std::string(Name(job_.precision))};
  if (job_.optimizer.ema) start.ema_decay = job_.optimizer.ema->decay;
  // Only rank 0 writes the record; the rest takes time, and querying versions loads libraries.
  if (comm_.rank() != 0) return start;
  // A sample passes through all stages; metrics divide by the peak of all ranks.
  start.flops_per_sample = MeanFlops(trainer_->model().WithAllStages(), *data.train);
  if (!device.gpu) return start;
  start.gpu = device.gpu->name;
  start.peak_flops = PeakFlops(start.gpu, GetNumerics(job_));
  start.gpu_memory_planned_bytes = trainer_->memory().device;
  for (const LibraryVersions& library : GpuLibraries()) {
    const std::string version = library.loaded ? ToText(*library.loaded) : "";
    if (library.name == "CUDA runtime") start.cuda = version;
    if (library.name == "CUDA driver") start.driver = version;
    if (library.name == "cuBLASLt") start.cublaslt = version;
    if (library.name == "cuDNN") start.cudnn = version;
    if (library.name == "NCCL") start.nccl = version;
  }
  return start;
}

void TrainingRun::Announce() const {
  const Trainer& trainer = *trainer_;
  RunReporter& reporter = *reporter_;
  const Plan& plan = trainer.plan();
  const Dataset& data = *trainer.data().train;
  const MemoryUse& memory = trainer.memory();
  const bool gpus = session_.device.device == Device::kCuda;
  reporter.Report(StartRecord());
  PlanOrigins origins;
  if (flags_.micro_batch_auto) origins.micro_batch = Origin::kMemory;
  reporter.Report(
      PlanRecord{plan, PlanText(plan, origins, gpus ? RankKind::kGpu : RankKind::kRank)});
  if (plan_->memory()) {
    reporter.LogAndPrint(StrCat("micro-batch ", plan_->request().micro_batch,
                                ", recompute: ", Name(plan_->request().recompute),
                                ", by memory: at most ", Megabytes(plan_->memory()->bytes),
                                " of the ", Megabytes(plan_->memory()->limit),
                                " that a rank may use; ", memory_limit_));
  }
  reporter.LogAndPrint(session_.device.text);
  const DnnChoice& dnn = session_.dnn;
  if (dnn.slow && comm_.rank() == 0) LogWarning(dnn.text);
  for (const std::string& note : {dnn.slow ? "" : dnn.text, session_.bf16}) {
    if (!note.empty()) reporter.LogAndPrint(note);
  }
  reporter.LogAndPrint(StrCat("model ", trainer.model().Describe(), ", ",
                              trainer.model().layout().parameters(), " parameters; ", data.size(),
                              " samples, ", Counted(trainer.schedule().updates(), "update")));
  if (const std::string decay = DecayText(trainer.model().layout(), job_.optimizer);
      decay != "none") {
    reporter.LogAndPrint(StrCat("weight decay of the parameters: ", decay));
  }
  AnnounceData(trainer, comm_.rank(), reporter);
  if (job_.optimizer.ema) {
    reporter.LogAndPrint(
        StrCat("evaluations and saved weights are those of the moving average, decay ",
               job_.optimizer.ema->decay));
  }
  reporter.LogAndPrint(StrCat(
      "memory per rank: planned ", Megabytes(memory.planned), " = ", Megabytes(memory.process),
      " program and data + ", Megabytes(memory.planned - memory.process),
      gpus ? StrCat(" batches and checkpoints; ", Megabytes(memory.device), " on its GPU")
           : " model, gradients, optimizer, activations, batches and checkpoints"));
  if (init_weights_ && !resumed_) {
    reporter.Report(ToRecord(*init_weights_));
    reporter.LogAndPrint(ToText(*init_weights_));
  }
  for (const std::string& note : resume_notes_) reporter.LogAndPrint(note);
  if (flags_.run_dir && !MakeSavePolicy(flags_).on()) {
    reporter.LogAndPrint(
        StrCat("checkpoints are off (--save-every-seconds): stopped, the run "
               "begins again at update ",
               resumed_ ? resumed_->step + 1 : 1));
  }
  if (resumed_) reporter.Report(*resumed_);
}

void TrainingRun::WarnAboutMistakes(bool saves) const {
  if (comm_.rank() != 0) return;
  for (const std::string& warning : BatchWarnings(job_.batch, *plan_)) LogWarning(warning);
  for (const std::string& warning :
       ScheduleWarnings(job_, plan_->lr_factor(), trainer_->schedule().updates())) {
    LogWarning(warning);
  }
  WarnAboutPadding("training", trainer_->labels(), *trainer_->data().train);
  if (const Dataset* eval = trainer_->data().eval.get(); eval != nullptr) {
    WarnAboutPadding("evaluation", trainer_->eval_labels(), *eval);
  }
  if (job_.evaluation.keep_best && !saves) {
    LogWarning("evaluation.keep_best: this run saves no checkpoints");
  }
}

void TrainingRun::Conclude(const TrainingSummary& summary) const {
  RunReporter& reporter = *reporter_;
  const MemoryUse& memory = trainer_->memory();
  if (!summary.stopped_early.empty()) reporter.Report(EarlyStop{summary.stopped_early});
  reporter.Report(
      MemoryRecord{.measured_bytes = summary.measured_memory, .planned_bytes = memory.planned});
  reporter.LogAndPrint(StrCat("memory per rank: measured ", Megabytes(summary.measured_memory),
                              ", planned ", Megabytes(memory.planned)));
  if (summary.skipped > 0) {
    reporter.LogAndPrint(StrCat(summary.skipped,
                                summary.skipped == 1 ? " update was" : " updates were",
                                " skipped: not finite"));
  }
  if (summary.unlabelled > 0) {
    reporter.LogAndPrint(StrCat(summary.unlabelled,
                                summary.unlabelled == 1 ? " update was" : " updates were",
                                " skipped: no label of them counts"));
  }
  if (summary.allocation_retries > 0) {
    reporter.LogAndPrint(StrCat(
        "failed allocations after which a rank used less memory: ", summary.allocation_retries,
        " (allocation_retry in ev/ of the run folder)"));
  }
  if (!summary.metrics.empty()) reporter.LogAndPrint("test " + MetricsText(summary.metrics, " "));
  const bool asked = flags_.save_weights || job_.evaluation.keep_best;
  if (asked && summary.best && comm_.rank() == 0) {
    reporter.LogAndPrint(BestText(flags_, job_, *summary.best, summary.updates));
  }
}

}  // namespace gaccd
