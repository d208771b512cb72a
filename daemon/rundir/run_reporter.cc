#include "daemon/rundir/run_reporter.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <optional>
#include <span>
#include <sstream>
#include <utility>

#include "collectives/base/strings.h"
#include "collectives/base/thread.h"
#include "collectives/base/time.h"
#include "collectives/bootstrap/agree.h"
#include "daemon/rundir/run_reporter_impl.h"
#include "daemon/rundir/verdict.h"
#include "daemon/telemetry/environment_text.h"

namespace gaccd {

namespace {

std::int64_t UsableCpus() {
  const auto cores = AllowedCores();
  return cores.ok() ? std::ssize(CoreNumbers(*cores)) : 0;
}

// Collective: the content of ranks.tsv. One line per rank, columns rank host node local cpus pid;
// the same on all ranks. cpus: the number of CPUs usable by the process.
Result<std::string> RankTable(Communicator& comm) {
  constexpr std::size_t kColumns = 3;
  const std::array<std::int64_t, kColumns> mine{comm.topology().local_rank, UsableCpus(),
                                                ::getpid()};
  GACCD_ASSIGN_OR_RETURN(const auto all, GatherAll(comm, std::span<const std::int64_t>(mine)));
  const Topology& topology = comm.topology();
  std::string text = "rank\thost\tnode\tlocal\tcpus\tpid\n";
  for (std::size_t rank = 0; rank * kColumns < all.size(); ++rank) {
    const std::int64_t* row = &all[rank * kColumns];
    text += StrCat(rank, "\t", topology.hosts[rank], "\t", topology.node_of[rank], "\t", row[0],
                   "\t", row[1], "\t", row[2], "\n");
  }
  return text;
}

Result<std::unique_ptr<EventLog>> OpenOwnEvents(const std::string& attempt_dir, int rank,
                                                unsigned mode) {
  std::string path = attempt_dir + Format("/ev/r%05d.jsonl", rank);
  GACCD_ASSIGN_OR_RETURN(FileDescriptor file, OpenFile(path, O_WRONLY | O_APPEND | O_CREAT, mode));
  return EventLog::Start(std::move(file), std::move(path), mode);
}

std::unique_ptr<Progress> MakeProgress(ProgressMode mode) {
  if (mode == ProgressMode::kOff) return nullptr;
  std::optional<Terminal> terminal =
      mode == ProgressMode::kOn ? Terminal::Assume(STDOUT_FILENO) : Terminal::Detect(STDOUT_FILENO);
  if (!terminal) return nullptr;
  const bool utf8 =
      IsUtf8Locale(std::getenv("LC_ALL"), std::getenv("LC_CTYPE"), std::getenv("LANG"));
  return std::make_unique<Progress>(*std::move(terminal), utf8);
}

std::chrono::steady_clock::duration ToDuration(double seconds) {
  return std::chrono::duration_cast<std::chrono::steady_clock::duration>(
      std::chrono::duration<double>(seconds));
}

}  // namespace

// On rank 0, before the others continue: any failure here stops the run.
Result<std::string> RunReporter::Impl::OpenFiles(const std::string& rank_table) {
  if (options.run_dir.empty()) return std::string();
  RunFolderRequest request{options.run_dir, options.job_text, options.plan_text, options.attempt,
                           modes,           options.patience};
  GACCD_ASSIGN_OR_RETURN(folder, RunFolder::Create(request));
  const std::string& dir = folder->attempt_dir();
  identity.job = folder->job();
  identity.attempt = folder->attempt();
  GACCD_RETURN_IF_ERROR(ReserveDiskSpace(dir, modes.file));
  GACCD_RETURN_IF_ERROR(ReplaceFile(dir + "/ranks.tsv", rank_table, false, modes.file));
  GACCD_RETURN_IF_ERROR(
      ReplaceFile(dir + "/env.json", EnvironmentJson(::environ) + "\n", false, modes.file));
  const auto notice = [who = identity](const LineStamp& before, const DroppedLines& dropped) {
    return EventJson(who, {before.ts, before.seq, "warning"}, dropped);
  };
  GACCD_ASSIGN_OR_RETURN(events, EventLog::Start(folder->ReleaseEventFile(), dir + "/events.jsonl",
                                                 modes.file, notice));
  RunStatus first;
  first.identity = identity;
  first.attempt_dir = "attempts" + dir.substr(dir.rfind('/'));
  first.pid = ::getpid();
  first.world = world;
  GACCD_ASSIGN_OR_RETURN(status, StatusFile::Start(
                                     folder->run_dir() + "/STATUS.json", std::move(first),
                                     [this](RunStatus& now) { return CompleteStatus(now); },
                                     options.status_period, modes.file));
  // For the other ranks, too: one of them may have to write the end.
  return StrCat(identity.attempt, "\n", identity.job, "\n", dir);
}

// Otherwise an existing folder would show that the run is starting.
void RunReporter::Impl::RecordFailedStart(const Status& why) {
  if (!folder) return;
  ReleaseDiskSpace(folder->attempt_dir());
  const Verdict verdict = MakeVerdict(why, {}, folder->attempt_dir());
  (void)WriteVerdictOnce(folder->attempt_dir(), identity, verdict, modes.file);
}

// Called on the thread of STATUS.json.
Status RunReporter::Impl::CompleteStatus(RunStatus& now) {
  folder->owner().Beat();
  now.write_errors += events->failures();
  now.dropped_lines = events->dropped() + DroppedLogLines();
  const auto quiet = events->quiet_for();
  if (quiet < options.max_quiet) return folder->owner().CheckInPlace();
  const HeartbeatRecord heartbeat{.phase = place.phase.load(std::memory_order_relaxed),
                                  .step = place.step.load(std::memory_order_relaxed),
                                  .micro_step = place.micro_step.load(std::memory_order_relaxed),
                                  .quiet_s = std::chrono::duration<double>(quiet).count()};
  WriteEvent(heartbeat);
  return folder->owner().CheckInPlace();
}

// On every rank; shared: result of OpenFiles() on rank 0.
void RunReporter::Impl::JoinFolder(const std::string& shared) {
  std::istringstream in(shared);
  RunIdentity of_run = identity;
  in >> of_run.attempt;
  std::getline(in >> std::ws, of_run.job);
  std::getline(in, attempt_dir, '\0');
  // Rank 0 has it, and its STATUS.json thread already reads it.
  if (!leads()) identity = std::move(of_run);
  if (leads() && options.guard != nullptr) {
    options.guard->Watch(identity, attempt_dir, world, modes.file);
  }
  StartOwnFiles();
  crash = CrashHandler::Install(CrashPath(attempt_dir, identity.rank), identity, place, modes.file);
}

// Starts the text log and the event file of this rank in the attempt's folder. If a node does not
// see that folder, the run folder is not on a shared file system: the log then stays on stderr.
void RunReporter::Impl::StartOwnFiles() {
  const std::string log_dir = attempt_dir + "/log";
  if (!PathExists(log_dir)) {
    LogWarning(StrCat("'", log_dir, "' does not exist on ", identity.host,
                      ": is the run folder shared by all nodes? The log stays on stderr"));
    return;
  }
  StartTextLog(log_dir, identity.rank, modes);
  auto opened = OpenOwnEvents(attempt_dir, identity.rank, modes.file);
  if (!opened.ok()) {
    LogWarning(StrCat(opened.status().message(), "; this rank writes no events of its own"));
    return;
  }
  own_events = *std::move(opened);
  own_steps.emplace(options.rank_period);
}

void RunReporter::Impl::WriteOwnSteps(const std::optional<RankStepRecord>& record) {
  if (record) own_events->Write(identity, *record);
}

void RunReporter::Impl::OnLogLine(LogLine line) {
  line.step = log_step;
  if (events) {
    events->Write(line.level,
                  [&](const LineStamp& stamp) { return EventJson(identity, stamp, line); });
  }
  const std::string text = StrCat("gaccd: ", line.level, ": ", Printable(line.message));
  if (bar) {
    bar->PrintAbove(text);
    return;
  }
  err.Write(text + "\n");
}

void RunReporter::Impl::Print(std::string_view text) {
  if (!leads() || options.quiet) return;
  if (bar) {
    bar->PrintAbove(text);
    return;
  }
  std::fflush(stdout);
  out.Write(StrCat(text, "\n"));
}

void RunReporter::Impl::SetProgress(std::int64_t step, std::int64_t samples) {
  SetLogStep(step);
  place.step.store(step, std::memory_order_relaxed);
  log_step = step;
  if (options.guard != nullptr) options.guard->SetProgress(step, samples);
}

// Once per stall.
void RunReporter::Impl::ReportStall() {
  constexpr std::chrono::seconds kStall{10};
  const auto stalled = events ? events->stalled_for() : std::nullopt;
  const bool late = stalled && *stalled >= kStall;
  if (late && !stall_reported) {
    LogWarning(StrCat("the run folder '", run_dir(), "' has not answered for ", kStall.count(),
                      " s; training continues, the log lines wait"));
  }
  stall_reported = late;
}

void RunReporter::Impl::ReportWriteFailure() {
  if (failure_reported || !events) return;
  Status first = events->first_failure();
  if (first.ok()) first = status->first_failure();
  if (first.ok()) return;
  failure_reported = true;
  LogWarning(StrCat(first.message(), "; training continues, some log lines are lost"));
}

RunReporter::RunReporter(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

Result<std::unique_ptr<RunReporter>> RunReporter::Start(Communicator& comm,
                                                        ReporterOptions options) {
  auto impl = std::make_shared<Impl>();
  impl->options = std::move(options);
  if (impl->options.group_access) impl->modes = kGroupMayRead;
  impl->world = comm.size();
  const OwnerName me = MakeOwnerName(StrCat("local-", ::getpid()), 0);
  impl->identity = {impl->options.run_name, me.job, me.attempt, comm.rank(), me.host};
  if (comm.rank() != 0) SetLogSender(StrCat("rank ", comm.rank(), " on ", me.host));
  GACCD_ASSIGN_OR_RETURN(const std::string table, RankTable(comm));
  Result<std::string> mine = std::string();
  if (impl->leads()) mine = impl->OpenFiles(table);
  if (!mine.ok()) impl->RecordFailedStart(mine.status());
  GACCD_ASSIGN_OR_RETURN(const std::string shared, ShareFromRank(comm, 0, mine));
  if (!shared.empty()) impl->JoinFolder(shared);
  if (impl->leads()) {
    if (!impl->options.quiet) impl->bar = MakeProgress(impl->options.progress);
    SetLogHook([raw = impl.get()](const LogLine& line) { raw->OnLogLine(line); });
  }
  return std::unique_ptr<RunReporter>(new RunReporter(std::move(impl)));
}

RunReporter::~RunReporter() {
  if (!impl_->finished) {
    Finish({ErrorKind::kInternal, "the run was left without a verdict"});
  }
}

const RunIdentity& RunReporter::identity() const { return impl_->identity; }

EventLog* RunReporter::events() const { return impl_->events.get(); }

void RunReporter::UpdateStatus(const std::function<void(RunStatus&)>& change) {
  if (impl_->status) impl_->status->Update(change);
}

Status RunReporter::WriteInputs(const std::string& job_text, const std::string& plan_text) {
  if (!impl_->folder) return Status::Ok();
  return impl_->folder->WriteInputs(job_text, plan_text).WithContext("run folder");
}

void RunReporter::Report(const StageRecord& stage) {
  SetPhase(stage.stage, 0);
  LogInfo(StrCat("starting: ", stage.stage));
  impl_->WriteEvent(stage);
}

void RunReporter::Report(const RunStart& start) {
  LogInfo(StrCat("gaccd ", start.version, ", rank ", impl_->identity.rank, " of ", start.world,
                 " on ", impl_->identity.host, ", model ", start.model, ", ", start.parameters,
                 " parameters"));
  impl_->WriteEvent(start);
  if (start.peak_flops > 0) {
    impl_->mfu_of_speed =
        start.flops_per_sample / (start.peak_flops * static_cast<double>(start.world));
  }
  Publish(start);
}

void RunReporter::Report(const PlanRecord& plan) {
  const std::string_view text = plan.text;
  impl_->WriteEvent(plan);
  Publish(plan);
  impl_->Print(text.ends_with('\n') ? text.substr(0, text.size() - 1) : text);
  if (impl_->leads()) LogInfo(StrCat("plan\n", text));
}

void RunReporter::Report(const StepRecord& update) {
  Impl& impl = *impl_;
  impl.SetProgress(update.step, update.samples_total);
  impl.last = update;
  StepRates rates = impl.clock.Count(update);
  if (impl.mfu_of_speed > 0) rates.mfu_ratio = rates.samples_per_s * impl.mfu_of_speed;
  if (impl.leads()) {
    StepRecord record = update;
    record.rates = rates;
    impl.WriteEvent(record);
    Publish(record);
    if (impl.status && !std::exchange(impl.has_step, true)) impl.status->WriteSoon();
    if (impl.bar) {
      impl.bar->Update({record.epoch, record.step, record.steps_total, record.loss,
                        rates.samples_per_s, rates.eta_s, record.lr});
    }
    impl.ReportWriteFailure();
    impl.ReportStall();
  }
  const Impl::Clock::time_point now = Impl::Clock::now();
  if (impl.own_steps) impl.WriteOwnSteps(impl.own_steps->Add(update, now));
  if (!impl.lines) impl.lines.emplace(impl.options.log_every, now - ToDuration(update.dur_s));
  const std::optional<double> rate = impl.lines->Due(update, now);
  if (!rate) return;
  const double elapsed_s = SecondsSince(impl.started, now);
  const std::string line = StepLine(update, *rate, elapsed_s);
  LogInfo(line);
  if (!impl.bar) impl.Print(line);
}

void RunReporter::Report(const EvalRecord& eval) {
  for (const MetricRecord& metric : MetricRecords(eval)) impl_->WriteEvent(metric);
  impl_->last_eval = eval;
  impl_->best = eval.best;
  Publish(eval);
}

void RunReporter::Report(const ResumeRecord& resume) {
  impl_->from = resume;
  impl_->best = resume.best;
  impl_->SetProgress(resume.step, resume.samples_total);
  impl_->WriteEvent(resume);
  Publish(resume);
}

void RunReporter::Report(const EarlyStop& stop) {
  impl_->ended_early = stop.why;
  LogAndPrint(stop.why);
}

void RunReporter::Report(const AllocationRetryRecord& retry) {
  if (impl_->own_events) impl_->own_events->Write(impl_->identity, retry);
  impl_->WriteEvent(retry);
  const std::string where =
      retry.step == 0 ? "before the first update"
                      : StrCat("in micro-step ", retry.micro_step, " of update ", retry.step);
  const std::string smaller = retry.samples < retry.samples_before
                                  ? StrCat("computes at most ", retry.samples,
                                           " samples at once, not ", retry.samples_before)
                                  : "recomputes blocks";
  LogWarning(StrCat("an allocation failed ", where, ": ", retry.reason, "; from here on this rank ",
                    smaller, ": the same updates, more slowly"));
}

void RunReporter::SetPhase(const char* phase, std::int64_t micro_step) {
  impl_->place.phase.store(phase, std::memory_order_relaxed);
  impl_->place.micro_step.store(micro_step, std::memory_order_relaxed);
}

void RunReporter::LogAndPrint(const std::string& line) {
  LogInfo(line);
  impl_->Print(Printable(line));
}

}  // namespace gaccd
