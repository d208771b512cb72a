#include "daemon/train/run.h"

#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>

#include "collectives/base/strings.h"
#include "collectives/bootstrap/mpi_version.h"
#include "collectives/bootstrap/same_on_all.h"
#include "daemon/config/help.h"
#include "daemon/config/job_text.h"
#include "daemon/config/plan_command.h"
#include "daemon/config/plan_proto.h"
#include "daemon/device/cpu/onednn_version.h"
#include "daemon/plan/plan_text.h"
#include "daemon/telemetry/run_reporter.h"
#include "collectives/bootstrap/agree.h"
#include "daemon/train/launch.h"
#include "daemon/train/selftest.h"
#include "daemon/train/trainer.h"

namespace gaccd {
namespace {

struct Setup {
  Job job;
  Plan plan;
  std::unique_ptr<Trainer> trainer;
};

// How a run ended. `shared`: all ranks have this same status, and `speaker` prints it; otherwise
// the others may still be waiting for this rank.
struct Ending {
  Status status;
  bool shared = true;
  int speaker = 0;
};

Ending Shared(Agreement agreement) {
  return {std::move(agreement.status), true, agreement.speaker};
}

// What every rank can do alone: job, plan, data, model.
Result<Setup> OpenAlone(const Flags& flags, Communicator& comm) {
  if (!flags.job) return Status(ErrorKind::kUsage, "train needs --job=FILE");
  GACCD_ASSIGN_OR_RETURN(Job job, LoadJob(*flags.job));
  GACCD_ASSIGN_OR_RETURN(job, OverlayFlags(std::move(job), flags));
  GACCD_ASSIGN_OR_RETURN(const Plan plan, PlanForWorld(job, flags, comm));
  GACCD_ASSIGN_OR_RETURN(auto trainer, Trainer::Open(comm, job, plan));
  return Setup{std::move(job), plan, std::move(trainer)};
}

Status CheckAllTheSame(const Flags& flags, const Job& job, Communicator& comm) {
  GACCD_RETURN_IF_ERROR(CheckSameOnAllRanks(comm, "binary", BuildId()));
  return CheckSameOnAllRanks(comm, "flags", JobDigest(job, flags));
}

Status PrepareTogether(const Flags& flags, Setup& setup) {
  GACCD_RETURN_IF_ERROR(setup.trainer->Prepare());
  if (flags.init_weights) return setup.trainer->LoadWeights(*flags.init_weights);
  return Status::Ok();
}

std::string Megabytes(std::int64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f MB", static_cast<double>(bytes) / 1e6);
  return text;
}

void Announce(const Flags& flags, const SlurmEnvironment& slurm, const Setup& setup,
              const Communicator& comm, RunReporter& reporter) {
  const Trainer& trainer = *setup.trainer;
  const MemoryFigures& memory = trainer.memory();
  reporter.Begin({.version = GaccdVersion(),
                  .git = GaccdRevision(),
                  .mpi = comm.size() > 1 ? MpiVersion() : "",
                  .comm = std::string(comm.name()),
                  .nodes = comm.topology().nodes,
                  .world = comm.size(),
                  .partition = slurm.partition,
                  .account = slurm.account,
                  .nodelist = slurm.nodelist,
                  .config_sha = JobDigest(setup.job, flags),
                  .model = trainer.model().Describe(),
                  .parameters = trainer.model().layout().parameters(),
                  .memory_planned_bytes = memory.planned,
                  .train_samples = trainer.train_samples(),
                  .eval_samples = trainer.eval_samples()});
  reporter.ShowPlan(setup.plan, PlanText(setup.plan, {}));
  reporter.Say(StrCat("model ", trainer.model().Describe(), ", ",
                      trainer.model().layout().parameters(), " parameters; ",
                      trainer.train_samples(), " samples, ", trainer.schedule().updates(),
                      " updates"));
  reporter.Say(StrCat("memory a rank: planned ", Megabytes(memory.planned), " (",
                      Megabytes(memory.process), " program and data + ",
                      Megabytes(memory.planned - memory.process), " engine)"));
}

void Conclude(const TrainingSummary& summary, const MemoryFigures& memory, RunReporter& reporter) {
  reporter.Say(StrCat("memory a rank: measured ", Megabytes(summary.measured_memory), ", planned ",
                      Megabytes(memory.planned)));
  if (summary.accuracy) {
    char text[64];
    std::snprintf(text, sizeof text, "test accuracy %.4f", *summary.accuracy);
    reporter.Say(text);
  }
}

Agreement SaveTogether(const Flags& flags, Setup& setup, Communicator& comm) {
  Status saved;
  if (flags.save_weights && comm.rank() == 0) {
    saved = setup.trainer->SaveWeights(*flags.save_weights);
  }
  return AgreeOn(comm, saved);
}

AttemptSource AttemptOf(const SlurmEnvironment& slurm) {
  AttemptSource source{.attempt_dir = ProcessEnvironment()("GACCD_ATTEMPT_DIR")};
  if (slurm.in_job()) source.slurm_job_id = std::to_string(*slurm.job_id);
  source.restart_count = static_cast<int>(std::min<std::int64_t>(slurm.restart_count, 999'999));
  return source;
}

Ending TrainTogether(const Flags& flags, const SlurmEnvironment& slurm, Setup& setup,
                     Communicator& comm) {
  auto reporter = RunReporter::Start(comm, {.run_dir = flags.run_dir.value_or(""),
                                            .run_name = setup.job.name,
                                            .job_text = JobText(setup.job),
                                            .plan_text = PlanTxtpb(setup.plan),
                                            .attempt = AttemptOf(slurm),
                                            .log_every = setup.job.log_every});
  if (!reporter.ok()) return {std::move(reporter).status()};
  Announce(flags, slurm, setup, comm, **reporter);
  TrainingSummary summary;
  if (Status status = setup.trainer->Run(**reporter, &summary); !status.ok()) {
    (*reporter)->Finish(status);
    // Divergence is seen by all ranks alike; after any other error ranks may be lost.
    const bool shared = status.kind() == ErrorKind::kNoRequeue;
    return {std::move(status), shared};
  }
  Agreement agreement = SaveTogether(flags, setup, comm);
  if (agreement.status.ok()) Conclude(summary, setup.trainer->memory(), **reporter);
  (*reporter)->Finish(agreement.status);
  return Shared(std::move(agreement));
}

Ending TrainOn(const Flags& flags, const SlurmEnvironment& slurm, Communicator& comm) {
  auto setup = OpenAlone(flags, comm);
  Agreement opened = AgreeOn(comm, setup.status());
  if (!opened.status.ok()) return Shared(std::move(opened));
  if (Status same = CheckAllTheSame(flags, setup->job, comm); !same.ok()) return {same};
  Agreement prepared = AgreeOn(comm, PrepareTogether(flags, *setup));
  if (!prepared.status.ok()) return Shared(std::move(prepared));
  return TrainTogether(flags, slurm, *setup, comm);
}

}  // namespace

TrainOutcome RunTrain(const Flags& flags, const ErrorPrinter& print) {
  auto ranks = JoinRanks(flags, ProcessEnvironment());
  if (!ranks.ok()) return {std::move(ranks).status()};
  Communicator& comm = *ranks->comm;
  Ending ending = TrainOn(flags, ranks->slurm, comm);
  if (ending.status.ok()) return {};
  if (ending.shared) {
    if (comm.rank() == ending.speaker) print(ending.status);
    return {std::move(ending.status), true};
  }
  const int code = static_cast<int>(ending.status.kind());
  const std::string& host = comm.topology().hosts[static_cast<std::size_t>(comm.rank())];
  const std::string me = StrCat("rank ", comm.rank(), " on ", host);
  ending.status = std::move(ending.status).WithContext(me);
  print(ending.status);
  comm.Abort(code);
  return {std::move(ending.status), true};
}

Status RunSelftest(const Flags& flags) {
  const std::int64_t nodes = flags.nodes.value_or(kDefaultNodes);
  const std::int64_t gpus_per_node = flags.gpus_per_node.value_or(kDefaultGpusPerNode);
  BatchSpec batch;
  batch.micro = flags.micro_batch.value_or(batch.micro);
  // Without a target: the ratio of the published case, 3072 / 2400.
  batch.target = flags.target_batch.value_or(nodes * gpus_per_node * batch.micro * 32 / 25);
  GACCD_ASSIGN_OR_RETURN(const PlanRequest request, ToPlanRequest(batch, nodes, gpus_per_node));
  GACCD_ASSIGN_OR_RETURN(const std::vector<SelftestCase> cases, RunSelftestCases(request));
  std::fputs(SelftestText(request, cases).c_str(), stdout);
  for (const SelftestCase& test : cases) {
    if (!test.passed()) {
      return {ErrorKind::kInternal, StrCat("selftest: mode ", Name(test.plan.request().rounding),
                                           " failed, see the table")};
    }
  }
  return Status::Ok();
}

std::vector<Version> LoadedLibraries() {
  return {{"MPI", MpiVersion()}, {"oneDNN", OneDnnVersion()}};
}

}  // namespace gaccd
