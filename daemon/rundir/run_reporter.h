// RunReporter: all output of a run. Every rank has one.
//
// Rank 0 writes the run folder (run_folder.h), events.jsonl, STATUS.json, verdict.json and the
// terminal; every rank writes its own text log, and ev/r<rank>.jsonl: how its updates went. On a
// terminal the plan is followed by a progress bar; in a file there is no bar but a line every
// log_every updates, and at least every 10 s:
//   epoch: 1 step: 100, loss is 1.402374, lr 0.1, 51.2k samples/s, 0:07
//
// After Start() nothing here stops training: a write that fails (disk full) is counted, reported
// once as a warning, and kept in write_status(); lines and STATUS.json are written by threads of
// their own, so a file system that does not answer holds nobody up. Used by one thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "collectives/base/result.h"
#include "collectives/comm/communicator.h"
#include "daemon/plan/plan.h"
#include "daemon/rundir/run_folder.h"
#include "daemon/rundir/verdict_guard.h"
#include "daemon/telemetry/event_lines.h"
#include "daemon/telemetry/event_log.h"
#include "daemon/telemetry/events.h"
#include "daemon/telemetry/run_status.h"

namespace gaccd {

enum class ProgressMode : std::uint8_t { kAuto, kOn, kOff };

struct ReporterOptions {
  std::string run_dir;   // created if missing; empty: no folder, no files (selftest, thread ranks)
  std::string run_name;  // the job's name
  std::string job_text;  // resolved job and plan, kept as job.txtpb and plan.txtpb
  std::string plan_text;
  AttemptSource attempt;  // what SLURM says; by default a local attempt
  std::int64_t log_every = 100;
  // kAuto: a bar when stdout is a terminal. kOn draws it in any case, kOff never.
  ProgressMode progress = ProgressMode::kAuto;
  bool quiet = false;         // nothing on stdout at all
  bool group_access = false;  // the group may read the run folder
  // STATUS.json is replaced so often; then an event file that was quiet for longer than the second
  // gets a line with the current phase of rank 0.
  std::chrono::milliseconds status_period{10'000};
  std::chrono::milliseconds most_quiet{30'000};
  std::chrono::milliseconds rank_period{60'000};  // of the lines in ev/
  VerdictGuard* guard = nullptr;                  // of rank 0; outlives the reporter
  // How long Finish() waits for the run folder; when a rank was lost, 3 s at most.
  std::chrono::milliseconds end_limit{10'000};
  OwnerPatience patience = {};  // with another owner of the run folder
};

// The run is complete before its last update: printed, and part of the verdict.
struct EarlyStop {
  std::string why;
};

class RunReporter {
 public:
  // Collective: rank 0 makes the folder; all ranks get the same error (kIo: cannot be written;
  // kConfig: another live run owns it) or continue together. Starts the text log of this process
  // when there is a run folder.
  static Result<std::unique_ptr<RunReporter>> Start(Communicator& comm, ReporterOptions options);

  ~RunReporter();  // without Finish(): the run is recorded as failed
  RunReporter(const RunReporter&) = delete;
  RunReporter& operator=(const RunReporter&) = delete;

  // attempts/<NNN-job> of this run; empty without a run folder.
  [[nodiscard]] const std::string& attempt_dir() const;
  [[nodiscard]] const RunIdentity& identity() const;

  // The resolved job and plan, where Start() got empty texts: they are known only later. Rank 0
  // writes them; kIo where it cannot.
  Status WriteInputs(const std::string& job_text, const std::string& plan_text);

  // Local calls; on ranks other than 0 they only reach the text log. Report() writes the event;
  // what it changes in STATUS.json and its line for people follow from the record
  // (event_record.h). These do more:
  void Report(const StageRecord& stage);  // sets the phase
  void Report(const RunStart& start);
  void Report(const PlanRecord& plan);      // prints its text
  void Report(const StepRecord& update);    // its rates are measured here
  void Report(const EvalRecord& eval);      // an event for each metric
  void Report(const ResumeRecord& resume);  // before the first update
  void Report(const EarlyStop& stop);
  void Report(const AllocationRetryRecord& retry);  // of any rank, in its ev/; and a warning
  template <EventRecord Record>
  void Report(const Record& record) {
    if (EventLog* const log = events()) log->Write(identity(), record);
    Publish(record);
  }
  // The current phase of this rank, for crash records and heartbeats: a literal ("compute",
  // "reduce"), and the micro-step. Wait-free.
  void SetPhase(const char* phase, std::int64_t micro_step);
  // Prints a line on stdout (above the bar) and writes it to the text log of this rank.
  void LogAndPrint(const std::string& line);
  // Removes the bar, writes verdict.json and the last STATUS.json, frees the folder. Once.
  // `outcome` is how training ended; its kind is the exit code. On every rank: one that failed
  // leaves crash/r<rank>.json, and when rank 0 is among the suspects, one of the others writes
  // verdict.json and STATUS.json in its place.
  void Finish(const Status& outcome, const FailureFacts& facts = {});
  // kIo: what Finish() could not write, and why; or the run folder did not answer.
  [[nodiscard]] const Status& close_status() const;

  // The first write that failed, and how many did.
  [[nodiscard]] Status write_status() const;

 private:
  struct Impl;

  template <typename Record>
  void Publish(const Record& record) {
    if constexpr (requires(RunStatus & status) { Apply(record, status); }) {
      UpdateStatus([&](RunStatus& status) { Apply(record, status); });
    }
    if constexpr (requires { EventLine(record); }) LogAndPrint(EventLine(record));
  }
  [[nodiscard]] EventLog* events() const;  // null where this rank writes none
  void UpdateStatus(const std::function<void(RunStatus&)>& change);

  explicit RunReporter(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;  // shared with what still hangs in a call to the file system
};

}  // namespace gaccd
