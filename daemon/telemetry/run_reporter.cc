#include "daemon/telemetry/run_reporter.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <sstream>
#include <thread>
#include <utility>

#include "collectives/base/strings.h"
#include "daemon/telemetry/agreement.h"
#include "daemon/telemetry/crash_handler.h"
#include "daemon/telemetry/environment_text.h"
#include "daemon/telemetry/event_lines.h"
#include "daemon/telemetry/event_log.h"
#include "daemon/telemetry/event_text.h"
#include "daemon/telemetry/log.h"
#include "daemon/telemetry/progress.h"
#include "daemon/telemetry/run_folder.h"
#include "daemon/telemetry/status_file.h"
#include "daemon/telemetry/step_stats.h"
#include "daemon/telemetry/verdict.h"

namespace gaccd {
namespace {

constexpr std::chrono::seconds kStatusPeriod{10};

// A log that reaches the file only on some nodes: the folder is not on a shared file system.
void StartLogOfThisRank(const std::string& log_dir, int rank, const std::string& host,
                        const Modes& modes) {
  struct stat info {};
  if (::stat(log_dir.c_str(), &info) == 0) {
    StartTextLog(log_dir, rank, modes);
    return;
  }
  LogWarning(StrCat("rank ", rank, " on ", host, " does not see '", log_dir,
                    "': is the run folder shared by all nodes? Its log stays on stderr"));
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

}  // namespace

struct RunReporter::Impl {
  using Clock = std::chrono::steady_clock;

  ReporterOptions options;
  Modes modes;
  RunIdentity identity;
  std::int64_t world = 1;
  std::string attempt_dir;
  Place place;                          // what this rank does
  std::unique_ptr<CrashHandler> crash;  // with a run folder
  Clock::time_point started = Clock::now();

  // Rank 0 with a run folder.
  std::optional<RunFolder> folder;
  std::unique_ptr<EventLog> events;
  std::unique_ptr<StatusFile> status;
  Status final_write;

  std::unique_ptr<Progress> bar;  // rank 0 on a terminal
  StepClock clock;
  StepRecord last;
  ResumeRecord from;                      // what came before the first update of this attempt
  std::atomic<std::int64_t> log_step{0};  // of `last`, for log lines of other threads
  bool failure_reported = false;
  bool finished = false;

  [[nodiscard]] bool leads() const { return identity.rank == 0; }

  Result<std::string> OpenFiles(const std::string& rank_table);
  void JoinFolder(const std::string& shared);
  void OnLogLine(const LogLine& line);
  void Print(std::string_view text);
  void WriteEvent(const std::function<std::string(const LineStamp&)>& make_line);
  [[nodiscard]] std::int64_t steps_done() const { return std::max(last.step, from.step); }
  void CompleteStatus(RunStatus& now);
  void ReportWriteFailure();
  void WriteFailure(const Status& outcome, const FailureFacts& facts);
  void WriteVerdict(const Verdict& verdict);
  void StandInForRankZero(const Verdict& verdict, const FailureFacts& facts);
};

// Rank 0, before the others go on: everything that can fail here stops the run.
Result<std::string> RunReporter::Impl::OpenFiles(const std::string& rank_table) {
  if (options.run_dir.empty()) return std::string();
  RunFolderRequest request{options.run_dir, options.job_text, options.plan_text, options.attempt,
                           modes};
  GACCD_ASSIGN_OR_RETURN(folder, RunFolder::Create(request));
  const std::string& dir = folder->attempt_dir();
  GACCD_RETURN_IF_ERROR(ReplaceFile(dir + "/ranks.tsv", rank_table, false, modes.file));
  GACCD_RETURN_IF_ERROR(
      ReplaceFile(dir + "/env.json", EnvironmentJson(::environ) + "\n", false, modes.file));
  identity.job = folder->job();
  identity.attempt = folder->attempt();
  events = std::make_unique<EventLog>(folder->TakeEventFile(), dir + "/events.jsonl", modes.file,
                                      [this](const LineStamp& stamp, const DroppedLines& dropped) {
                                        return DroppedJson(identity, stamp, dropped.lines,
                                                           dropped.total, dropped.reason);
                                      });
  RunStatus first;
  first.identity = identity;
  first.attempt_dir = "attempts" + dir.substr(dir.rfind('/'));
  first.pid = ::getpid();
  first.world = world;
  GACCD_ASSIGN_OR_RETURN(
      status, StatusFile::Start(
                  folder->run_dir() + "/STATUS.json", std::move(first),
                  [this](RunStatus& now) { CompleteStatus(now); }, kStatusPeriod, modes.file));
  // For the others, too: one of them may have to write the end.
  return StrCat(identity.attempt, "\n", identity.job, "\n", dir);
}

// On the thread of STATUS.json.
void RunReporter::Impl::CompleteStatus(RunStatus& now) {
  folder->owner().Beat();
  now.write_errors += events->failures() + (final_write.ok() ? 0 : 1);
  now.dropped_lines = events->dropped() + DroppedLogLines();
}

// Every rank: `shared` is what OpenFiles() gave to rank 0.
void RunReporter::Impl::JoinFolder(const std::string& shared) {
  std::istringstream in(shared);
  in >> identity.attempt;
  std::getline(in >> std::ws, identity.job);
  std::getline(in, attempt_dir, '\0');
  StartLogOfThisRank(attempt_dir + "/log", identity.rank, identity.host, modes);
  crash = CrashHandler::Install(CrashPath(attempt_dir, identity.rank), identity, place, modes.file);
}

void RunReporter::Impl::OnLogLine(const LogLine& line) {
  if (events) {
    events->Write(line.level,
                  [&](const LineStamp& stamp) { return LogJson(identity, stamp, line, log_step); });
  }
  const std::string text = StrCat("gaccd: ", line.level, ": ", Printable(line.message));
  if (bar) {
    bar->PrintAbove(text);
    return;
  }
  [[maybe_unused]] const Status written = WriteAll(STDERR_FILENO, text + "\n", "stderr");
}

void RunReporter::Impl::Print(std::string_view text) {
  if (!leads() || options.quiet) return;
  if (bar) {
    bar->PrintAbove(text);
    return;
  }
  std::fflush(stdout);
  [[maybe_unused]] const Status written = WriteAll(STDOUT_FILENO, StrCat(text, "\n"), "stdout");
}

void RunReporter::Impl::WriteEvent(const std::function<std::string(const LineStamp&)>& make_line) {
  if (events) events->Write("info", make_line);
}

void RunReporter::Impl::ReportWriteFailure() {
  if (failure_reported || !events) return;
  Status first = events->first_failure();
  if (first.ok()) first = status->first_failure();
  if (first.ok()) return;
  failure_reported = true;
  LogWarning(StrCat(first.message(), "; training goes on, some lines about it are lost"));
}

void RunReporter::Impl::WriteFailure(const Status& outcome, const FailureFacts& facts) {
  if (attempt_dir.empty() || !IsFailure(outcome)) return;
  const Failure failure{.exit = static_cast<int>(outcome.kind()),
                        .signal = 0,
                        .step = steps_done(),
                        .phase = place.phase.load(),
                        .micro_step = place.micro_step.load(),
                        .collective = facts.collective,
                        .sequence = facts.sequence,
                        .message = outcome.message()};
  const auto there =
      CreateFileOnce(CrashPath(attempt_dir, identity.rank),
                     FailureJson(identity, {Timestamp(), 1, "error"}, failure) + "\n", modes.file);
  if (!there.ok()) LogInfo(there.status().message());  // a folder that this node does not see
}

void RunReporter::Impl::WriteVerdict(const Verdict& verdict) {
  WriteEvent([&](const LineStamp& stamp) { return VerdictJson(identity, stamp, verdict); });
  events->Sync();
  // One that is there already was written by another rank, which took this one for lost.
  final_write = WriteVerdictOnce(attempt_dir, identity, verdict, modes.file).status();
  status->Update([&](RunStatus& now) {
    now.state = EndState(verdict);
    now.verdict = verdict;
  });
  const Status closed = status->Finish();
  if (final_write.ok()) final_write = closed;
}

// Rank 0 is lost: one of the others writes its last words. Or this rank is the one that is cut off,
// and both name each other at about the same time (0.8 s apart were seen); then rank
// 0, which sees all others, comes first.
void RunReporter::Impl::StandInForRankZero(const Verdict& verdict, const FailureFacts& facts) {
  constexpr std::chrono::milliseconds kAfterRankZero{600};
  constexpr std::chrono::milliseconds kAfterSilence{1'500};
  if (leads() || attempt_dir.empty() || !Suspects(facts, 0)) return;
  std::this_thread::sleep_for(facts.silent ? kAfterSilence : kAfterRankZero);
  RunStatus now;
  now.identity = identity;
  now.pid = ::getpid();
  now.world = world;
  now.last = last;
  now.from_step = from.step;
  now.from_samples = from.samples_total;
  const Status written = WriteVerdictForRankZero(attempt_dir, now, verdict, modes.file);
  if (!written.ok()) LogWarning(written.message());
}

RunReporter::RunReporter(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Result<std::unique_ptr<RunReporter>> RunReporter::Start(Communicator& comm,
                                                        ReporterOptions options) {
  auto impl = std::make_unique<Impl>();
  impl->options = std::move(options);
  if (impl->options.group_access) impl->modes = kGroupMayRead;
  impl->world = comm.size();
  const OwnerName me = MakeOwnerName(StrCat("local-", ::getpid()), 0);
  impl->identity = {impl->options.run_name, me.job, me.attempt, comm.rank(), me.host};
  GACCD_ASSIGN_OR_RETURN(const std::string table, RankTable(comm));
  Result<std::string> mine = std::string();
  if (impl->leads()) mine = impl->OpenFiles(table);
  GACCD_ASSIGN_OR_RETURN(const std::string shared, ShareFromRankZero(comm, mine));
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

const std::string& RunReporter::attempt_dir() const { return impl_->attempt_dir; }

const RunIdentity& RunReporter::identity() const { return impl_->identity; }

void RunReporter::Begin(const RunStart& start) {
  LogInfo(StrCat("gaccd ", start.version, ", rank ", impl_->identity.rank, " of ", start.world,
                 " on ", impl_->identity.host, ", model ", start.model, ", ", start.parameters,
                 " parameters"));
  impl_->WriteEvent(
      [&](const LineStamp& stamp) { return RunStartJson(impl_->identity, stamp, start); });
  if (!impl_->status) return;
  impl_->status->Update([&](RunStatus& now) {
    now.device = start.device;
    now.gpu = start.gpu;
  });
}

void RunReporter::ShowPlan(const Plan& plan, const std::string& text) {
  impl_->WriteEvent(
      [&](const LineStamp& stamp) { return PlanEventJson(impl_->identity, stamp, plan); });
  impl_->Print(text.ends_with('\n') ? std::string_view(text).substr(0, text.size() - 1) : text);
  if (impl_->leads()) LogInfo(StrCat("plan\n", text));
}

void RunReporter::Step(const StepRecord& record) {
  Impl& impl = *impl_;
  SetLogStep(record.step);
  impl.place.step.store(record.step, std::memory_order_relaxed);
  impl.last = record;
  impl.log_step = record.step;
  const StepRates rates = impl.clock.Count(record);
  if (impl.leads()) {
    impl.WriteEvent(
        [&](const LineStamp& stamp) { return StepJson(impl.identity, stamp, record, rates); });
    if (impl.status) {
      impl.status->Update([&](RunStatus& now) {
        now.state = "running";
        now.last = record;
        now.rates = rates;
        now.last_step_ts = Timestamp();
      });
    }
    if (impl.bar) {
      impl.bar->Update({record.epoch, record.step, record.steps_total, record.loss,
                        rates.samples_per_s, rates.eta_s});
    }
    impl.ReportWriteFailure();
  }
  const bool due = impl.options.log_every > 0 && record.step % impl.options.log_every == 0;
  if (!due && record.step != record.steps_total && !record.skipped) return;
  const std::string line = StepLine(record);
  LogInfo(line);
  if (!impl.bar) impl.Print(line);
}

void RunReporter::Eval(const EvalRecord& record) {
  const auto event = [&](std::string_view metric, double value) {
    impl_->WriteEvent([&](const LineStamp& stamp) {
      return EvalJson(impl_->identity, stamp, record, metric, value);
    });
  };
  event("loss", record.loss);
  if (record.accuracy) event("accuracy", *record.accuracy);
  Say(EvalLine(record));
}

void RunReporter::Resumed(const ResumeRecord& record) {
  Impl& impl = *impl_;
  impl.from = record;
  SetLogStep(record.step);
  impl.place.step.store(record.step, std::memory_order_relaxed);
  impl.log_step = record.step;
  impl.WriteEvent([&](const LineStamp& stamp) { return ResumeJson(impl.identity, stamp, record); });
  if (impl.status) {
    impl.status->Update([&](RunStatus& now) {
      now.from_step = record.step;
      now.from_samples = record.samples_total;
    });
  }
  Say(ResumeLine(record));
}

void RunReporter::Saved(const SaveRecord& record) {
  Impl& impl = *impl_;
  const char* level = record.reason.empty() ? "info" : "warning";
  if (impl.events) {
    impl.events->Write(
        level, [&](const LineStamp& stamp) { return SaveJson(impl.identity, stamp, record); });
  }
  if (!impl.status) return;
  impl.status->Update([&](RunStatus& now) {
    now.failed_saves = record.failed_in_row;
    if (!record.reason.empty()) return;
    now.save_step = record.step;
    now.save_ts = Timestamp();
  });
}

void RunReporter::Note(const char* phase, std::int64_t micro_step) {
  impl_->place.phase.store(phase, std::memory_order_relaxed);
  impl_->place.micro_step.store(micro_step, std::memory_order_relaxed);
}

void RunReporter::Say(const std::string& line) {
  LogInfo(line);
  impl_->Print(Printable(line));
}

void RunReporter::Finish(const Status& outcome, const FailureFacts& facts) {
  Impl& impl = *impl_;
  if (impl.finished) return;
  impl.finished = true;
  impl.WriteFailure(outcome, facts);  // before the others are told, and read it
  Verdict verdict = MakeVerdict(outcome, facts, impl.attempt_dir);
  verdict.last_step = impl.steps_done();
  verdict.samples_total = std::max(impl.last.samples_total, impl.from.samples_total);
  verdict.dur_s = std::chrono::duration<double>(Impl::Clock::now() - impl.started).count();
  if (impl.leads()) SetLogHook({});  // before what it uses goes
  impl.bar.reset();
  if (impl.events) impl.WriteVerdict(verdict);
  if (impl.folder) impl.folder->owner().Release();
  impl.StandInForRankZero(verdict, facts);
  impl.crash.reset();
  Say(StrCat(outcome.ok() ? "done" : "stopped", ": ", verdict.last_step, " updates, ",
             verdict.samples_total, " samples in ", DurationText(verdict.dur_s),
             impl.attempt_dir.empty() ? "" : "; logs: ", impl.attempt_dir));
}

Status RunReporter::write_status() const {
  if (!impl_->events) return Status::Ok();
  for (const Status& status :
       {impl_->events->first_failure(), impl_->status->first_failure(), impl_->final_write}) {
    if (!status.ok()) return status;
  }
  return Status::Ok();
}

}  // namespace gaccd
