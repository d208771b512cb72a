#include "daemon/train/announce.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "collectives/base/strings.h"
#include "collectives/bootstrap/mpi_version.h"
#include "daemon/config/help.h"
#include "daemon/config/job_text.h"
#include "daemon/plan/plan_text.h"
#include "daemon/preflight/gpu_libraries.h"
#include "daemon/preflight/peak_flops.h"
#include "daemon/telemetry/event_lines.h"
#include "daemon/tensor/group_rules.h"

namespace gaccd {
namespace {

// Over the samples, each cut as if it were alone.
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

RunStart StartRecord(const Flags& flags, const Session& session) {
  const Setup& setup = *session.setup;
  const Trainer& trainer = *setup.trainer;
  const Communicator& comm = session.comm;
  RunStart start{
      .version = GaccdVersion(),
      .git = GaccdRevision(),
      .mpi = comm.size() > 1 ? MpiVersion() : "",
      .comm = std::string(session.between_gpus ? session.between_gpus->name() : comm.name()),
      .nodes = comm.topology().nodes,
      .world = comm.size(),
      .partition = session.slurm.partition,
      .account = session.slurm.account,
      .nodelist = session.slurm.nodelist,
      .config_sha = JobDigest(setup.job, flags),
      .model = trainer.model().Describe(),
      .parameters = trainer.model().layout().parameters(),
      .memory_planned_bytes = trainer.memory().planned,
      .train_samples = trainer.data().train->size(),
      .eval_samples = trainer.data().eval ? trainer.data().eval->size() : 0,
      .device = std::string(Name(session.device.device)),
      .device_reason = session.device.text,
      .precision = std::string(Name(setup.job.precision))};
  if (setup.job.optimizer.ema) start.ema_decay = setup.job.optimizer.ema->decay;
  // Only rank 0 writes the record; what follows takes time, and asking for versions loads
  // libraries.
  if (comm.rank() != 0) return start;
  start.flops_per_sample = MeanFlops(trainer.model(), *trainer.data().train);
  if (!session.device.gpu) return start;
  start.gpu = session.device.gpu->name;
  start.peak_flops = PeakFlops(start.gpu, NumericsOf(setup.job));
  start.gpu_memory_planned_bytes = trainer.memory().device;
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

// "best loss 0.2500 after update 16; w.safetensors has the last weights, after update 24".
std::string BestText(const Flags& flags, const BestValue& best, std::int64_t updates) {
  std::string text =
      StrCat("best ", MetricsText(std::array{MetricValue{best.metric, best.value}}, " "),
             " after update ", best.step);
  if (!flags.save_weights) return text;
  const bool last = best.step == updates;
  return StrCat(text, "; ", *flags.save_weights, " has ",
                last ? "these weights" : StrCat("the last weights, after update ", updates));
}

}  // namespace

void Announce(const Flags& flags, const Session& session, RunReporter& reporter) {
  const Setup& setup = *session.setup;
  const Trainer& trainer = *setup.trainer;
  const Dataset& data = *trainer.data().train;
  const Dataset* eval = trainer.data().eval.get();
  const MemoryUse& memory = trainer.memory();
  const bool gpus = session.device.device == Device::kCuda;
  reporter.ReportStart(StartRecord(flags, session));
  reporter.ReportPlan(setup.plan,
                      PlanText(setup.plan, {}, gpus ? RankKind::kGpu : RankKind::kRank));
  reporter.LogAndPrint(session.device.text);
  for (const std::string& note : {session.attention.text, session.bf16}) {
    if (!note.empty()) reporter.LogAndPrint(note);
  }
  reporter.LogAndPrint(StrCat("model ", trainer.model().Describe(), ", ",
                              trainer.model().layout().parameters(), " parameters; ", data.size(),
                              " samples, ", trainer.schedule().updates(), " updates"));
  if (const std::string decay = DecayText(trainer.model().layout(), setup.job.optimizer);
      decay != "none") {
    reporter.LogAndPrint(StrCat("weight decay ", decay));
  }
  const std::string converted = data.conversions();
  if (!converted.empty()) reporter.LogAndPrint(StrCat("converted while reading: ", converted));
  if (eval != nullptr && eval->conversions() != converted && !eval->conversions().empty()) {
    reporter.LogAndPrint(StrCat("and of the evaluation data: ", eval->conversions()));
  }
  if (const auto& cuts = trainer.model().sample().cuts; !cuts.empty() && session.comm.rank() == 0) {
    reporter.LogAndPrint(StrCat("micro-batches are grouped by length and cut to multiples of ",
                                cuts.front(), " tokens; mean length ",
                                std::lround(MeanLength(data))));
  }
  if (setup.job.optimizer.ema) {
    reporter.LogAndPrint(
        StrCat("evaluations and saved weights are those of the moving average, decay ",
               setup.job.optimizer.ema->decay));
  }
  reporter.LogAndPrint(
      StrCat("memory per rank: planned ", Megabytes(memory.planned), ", ",
             Megabytes(memory.planned - memory.process), " of it for engine and checkpoints",
             gpus ? StrCat(", and ", Megabytes(memory.device), " on its GPU") : ""));
  if (trainer.unlabelled() > 0) {
    reporter.LogAndPrint(
        StrCat(trainer.unlabelled(), " of ", data.size(),
               " training samples have no label that counts; an update of such samples "
               "alone is skipped"));
  }
  if (const auto bad = data.bad_records(); !bad.empty()) {
    reporter.LogAndPrint(StrCat("damaged records: ", bad.size(), " of ", data.size(),
                                " are replaced by others; the first: ", bad.front().why));
  }
  if (eval != nullptr && !eval->bad_records().empty()) {
    const auto bad = eval->bad_records();
    reporter.LogAndPrint(StrCat("damaged records: ", bad.size(),
                                " are left out of the evaluation, ", eval->size(),
                                " remain; the first: ", bad.front().why));
  }
  if (session.init_weights && !session.resumed) {
    reporter.ReportWeights(RecordOf(*session.init_weights));
    reporter.LogAndPrint(ToText(*session.init_weights));
  }
  for (const std::string& note : session.resume_notes) reporter.LogAndPrint(note);
  if (session.resumed) reporter.ReportResume(*session.resumed);
}

void Conclude(const Flags& flags, const Session& session, const TrainingSummary& summary,
              RunReporter& reporter) {
  const MemoryUse& memory = session.setup->trainer->memory();
  if (!summary.stopped_early.empty()) reporter.ReportEarlyStop(summary.stopped_early);
  reporter.ReportMemory(
      {.measured_bytes = summary.measured_memory, .planned_bytes = memory.planned});
  reporter.LogAndPrint(StrCat("memory per rank: measured ", Megabytes(summary.measured_memory),
                              ", planned ", Megabytes(memory.planned)));
  if (summary.skipped > 0) {
    reporter.LogAndPrint(StrCat(summary.skipped, " updates were skipped: not finite"));
  }
  if (summary.unlabelled > 0) {
    reporter.LogAndPrint(
        StrCat(summary.unlabelled, " updates were skipped: no label of them counts"));
  }
  if (!summary.metrics.empty()) reporter.LogAndPrint("test " + MetricsText(summary.metrics, " "));
  const bool asked = flags.save_weights || session.setup->job.evaluation.keep_best;
  if (asked && summary.best) reporter.LogAndPrint(BestText(flags, *summary.best, summary.updates));
}

}  // namespace gaccd
