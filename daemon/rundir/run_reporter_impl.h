// Implementation of RunReporter; private to its files.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "collectives/base/files.h"
#include "daemon/rundir/run_folder.h"
#include "daemon/rundir/run_reporter.h"
#include "daemon/rundir/status_file.h"
#include "daemon/telemetry/crash_handler.h"
#include "daemon/telemetry/event_text.h"
#include "daemon/telemetry/log.h"
#include "daemon/telemetry/progress.h"
#include "daemon/telemetry/step_stats.h"
#include "daemon/telemetry/terminal.h"

namespace gaccd {

struct RunReporter::Impl {
  using Clock = std::chrono::steady_clock;

  ReporterOptions options;
  Modes modes;
  RunIdentity identity;
  std::int64_t world = 1;
  double mfu_of_speed = 0;  // per sample and second; 0: not known
  std::string attempt_dir;
  RankPosition place;                    // the current state of this rank
  std::unique_ptr<CrashHandler> crash;   // with a run folder
  std::unique_ptr<EventLog> own_events;  // with a run folder that is visible on this node
  std::optional<RankSteps> own_steps;
  Clock::time_point started = Clock::now();

  // On rank 0 with a run folder.
  std::optional<RunFolder> folder;
  std::unique_ptr<EventLog> events;
  std::unique_ptr<StatusFile> status;
  Status final_write;  // result of CloseFiles()

  std::unique_ptr<Progress> bar;  // rank 0 on a terminal
  TerminalOutput out{STDOUT_FILENO};
  TerminalOutput err{STDERR_FILENO};
  StepClock clock;
  std::optional<LineClock> lines;  // set from the first update on
  StepRecord last;
  EvalRecord last_eval;
  std::optional<BestValue> best;          // over all evaluations so far
  bool has_step = false;                  // in this attempt
  ResumeRecord from;                      // state before the first update of this attempt
  std::atomic<std::int64_t> log_step{0};  // step of `last`, for log lines of other threads
  std::string ended_early;                // why; empty: it did not
  bool failure_reported = false;
  bool stall_reported = false;
  bool finished = false;
  Status close_status;  // the run folder did not respond at the end

  [[nodiscard]] bool leads() const { return identity.rank == 0; }

  Result<std::string> OpenFiles(const std::string& rank_table);
  void RecordFailedStart(const Status& why);
  void JoinFolder(const std::string& shared);
  void OnLogLine(LogLine line);
  void Print(std::string_view text);
  void WriteEvent(const EventRecord auto& record) {
    if (events) events->Write(identity, record);
  }
  [[nodiscard]] std::int64_t steps_done() const { return std::max(last.step, from.step); }
  [[nodiscard]] std::int64_t samples_done() const {
    return std::max(last.samples_total, from.samples_total);
  }
  // Sets the finished updates and samples, for the log, heartbeats and the guard.
  void SetProgress(std::int64_t step, std::int64_t samples);
  Status CompleteStatus(RunStatus& now);
  void StartOwnFiles();
  void WriteOwnSteps(const std::optional<RankStepRecord>& record);
  void ReportWriteFailure();
  void ReportStall();
  [[nodiscard]] std::string run_dir() const { return ParentFolder(ParentFolder(attempt_dir)); }
  // The attempt folder relative to the run folder as given by the user.
  [[nodiscard]] std::string AttemptDirAsGiven() const {
    const std::string_view given(options.run_dir);
    // Without the name if `attempts` is a link to another folder.
    const std::size_t name = std::min(attempt_dir.rfind("/attempts/"), attempt_dir.size());
    return std::string(given.substr(0, given.find_last_not_of('/') + 1)) + attempt_dir.substr(name);
  }

  // The end of a run, in run_reporter_end.cc. Functions that write files may hang, so they are
  // called on a separate thread, which shares ownership of this object.
  [[nodiscard]] bool HasFilesToClose(const Status& outcome, const FailureFacts& facts) const;
  // until: for how long a rank that does not write the verdict waits for it.
  void CloseFiles(const Status& outcome, const FailureFacts& facts, double dur_s,
                  Clock::time_point until);
  void WaitForVerdict(const FailureFacts& facts, Clock::time_point until) const;
  void WriteFailure(const Status& outcome, const FailureFacts& facts);
  void WriteVerdict(const Verdict& verdict);
  [[nodiscard]] Verdict MakeRunVerdict(const Status& outcome, const FailureFacts& facts,
                                       double dur_s) const;
  void CloseForRankZero(const Status& outcome, FailureFacts facts, double dur_s);
};

}  // namespace gaccd
