// RunReporter: all output of a run. Every rank has one.
//
// Rank 0 writes the run folder (run_folder.h), events.jsonl, STATUS.json, verdict.json and the
// terminal; every rank writes its own text log, and ev/r<rank>.jsonl with statistics of its
// updates. On a terminal a progress bar follows the plan; in a file there is a line every log_every
// updates instead, and at least every 10 s:
//   epoch: 1 step: 100, loss is 1.402374, lr 0.1, 51.2k samples/s, 0:07
//
// After Start() no failure here stops training: a failed write (disk full) is counted and reported
// once as a warning. Lines and STATUS.json are written by separate threads, so a file system that
// does not respond blocks nothing. Used by one thread.
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
#include "daemon/telemetry/event_text.h"
#include "daemon/telemetry/events.h"
#include "daemon/telemetry/run_status.h"

namespace gaccd {

enum class ProgressMode : std::uint8_t { kAuto, kOn, kOff };

struct ReporterOptions {
  // created if missing; empty: no folder and no files (selftest, thread ranks)
  std::string run_dir;
  std::string run_name;  // the job's name
  std::string job_text;  // resolved job and plan, stored as job.txtpb and plan.txtpb
  std::string plan_text;
  AttemptSource attempt;  // default: a local attempt
  std::int64_t log_every = 100;
  // kAuto: a bar if stdout is a terminal. kOn: always, kOff: never.
  ProgressMode progress = ProgressMode::kAuto;
  bool quiet = false;         // nothing on stdout
  bool group_access = false;  // the group may read the run folder
  // Period of STATUS.json; an event file without events for max_quiet then gets a line with the
  // current phase of rank 0.
  std::chrono::milliseconds status_period{10'000};
  std::chrono::milliseconds max_quiet{30'000};
  std::chrono::milliseconds rank_period{60'000};  // period of the lines in ev/
  VerdictGuard* guard = nullptr;                  // on rank 0; must outlive the reporter
  // How long Finish() waits for the run folder; at most 3 s if a rank was lost.
  std::chrono::milliseconds end_limit{10'000};
  OwnerPatience patience = {};  // with another owner of the run folder
};

// The run is complete before its last update: printed, and part of the verdict.
struct EarlyStop {
  std::string why;
};

class RunReporter {
 public:
  // Collective: rank 0 creates the folder; all ranks get the same error (kIo: cannot be written;
  // kConfig: another active run owns it) or continue. Starts the text log of this process if there
  // is a run folder.
  static Result<std::unique_ptr<RunReporter>> Start(Communicator& comm, ReporterOptions options);

  ~RunReporter();  // without Finish(): the run is recorded as failed
  RunReporter(const RunReporter&) = delete;
  RunReporter& operator=(const RunReporter&) = delete;

  [[nodiscard]] const RunIdentity& identity() const;

  // Sets the resolved job and plan if Start() got empty texts, as they are only known later. Rank 0
  // writes them; kIo on failure.
  Status WriteInputs(const std::string& job_text, const std::string& plan_text);

  // Local calls; on ranks other than 0 they only write to the text log. Report() writes the event;
  // the record defines its changes of STATUS.json and its line for users (event_record.h). These
  // overloads do more:
  void Report(const StageRecord& stage);  // sets the phase
  void Report(const RunStart& start);
  void Report(const PlanRecord& plan);      // prints its text
  void Report(const StepRecord& update);    // measures its rates
  void Report(const EvalRecord& eval);      // one event per metric
  void Report(const ResumeRecord& resume);  // before the first update
  void Report(const EarlyStop& stop);
  void Report(const AllocationRetryRecord& retry);  // of any rank, to its ev/; and a warning
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
  // Removes the bar, writes verdict.json and the last STATUS.json, releases the folder. Call once.
  // outcome: the result of the training; its kind is the exit code. Call on every rank: a failed
  // rank writes crash/r<rank>.json, and if rank 0 is among the suspects, another rank writes
  // verdict.json and STATUS.json instead. If ranks are lost, the others return once there is a
  // verdict.json, or after nine tenths of end_limit, at most 2.7 s.
  void Finish(const Status& outcome, const FailureFacts& facts = {});
  // kIo: what Finish() could not write, with the reason; or the run folder did not respond.
  [[nodiscard]] const Status& close_status() const;

 private:
  struct Impl;

  template <typename Record>
  void Publish(const Record& record) {
    if constexpr (requires(RunStatus & status) { Apply(record, status); }) {
      UpdateStatus([&](RunStatus& status) { Apply(record, status); });
    }
    if constexpr (requires { EventLine(record); }) LogAndPrint(EventLine(record));
  }
  [[nodiscard]] EventLog* events() const;  // null if this rank writes none
  void UpdateStatus(const std::function<void(RunStatus&)>& change);

  explicit RunReporter(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;  // shared with calls that may hang in the file system
};

}  // namespace gaccd
