// `gaccd doctor RUN`: why a run ended or is stuck, who is suspected, and what to do.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "collectives/base/result.h"
#include "daemon/inspect/watch/advice.h"
#include "daemon/inspect/watch/event.h"
#include "daemon/inspect/watch/run_state.h"
#include "slurm/job_states.h"

namespace gaccd {

// What a rank left behind when it failed.
struct RankFailure {
  WallTime at;
  std::int64_t rank = 0;
  std::string host;
  std::int64_t step = 0;
  std::string what;  // "exit 65", "signal 11", with phase and collective; one line, as the next
  std::string message;
  bool left_for_others = false;  // it only saw other ranks lost
  std::int64_t more_ranks = 0;   // that failed with the same exit code and message
};

// Of an event "failure".
[[nodiscard]] RankFailure FailureOf(const Event& event);
// true: `failure` is counted with the one of `known` that has the same exit code and message. All
// ranks that agree on an error leave a record of it: it is one failure.
bool CountWithSame(const RankFailure& failure, std::vector<RankFailure>* known);

// A host that verdicts suspect, and in how many attempts.
struct SuspectHost {
  std::string host;
  int attempts = 0;
};

struct Diagnosis {
  RunState state;  // with the suspects of the newest attempt
  std::size_t attempts = 0;
  std::string newest;                 // the name of the newest attempt
  std::vector<RankFailure> failures;  // of the newest attempt, the first one first
  std::vector<std::string> warnings;  // the last ones of its events, oldest first
  std::string srun_errors;            // SrunErrors()
  std::vector<SuspectHost> suspects;  // of the newest attempt first, then by attempts
  std::vector<Advice> advice;         // what to do, in this order
  std::vector<std::string> notes;     // what is wrong with the files
};

// What a diagnosis needs of the events of one attempt. Not thread-safe.
class EventDiagnosis {
 public:
  explicit EventDiagnosis(std::string attempt) : attempt_(std::move(attempt)) {}
  // In the order of EventStream; events of other attempts change nothing.
  void Add(const Event& event);
  // Sets the failures and warnings.
  void MoveTo(Diagnosis* diagnosis) &&;

 private:
  std::string attempt_;
  std::vector<RankFailure> failures_;
  std::deque<std::string> warnings_;
};

// Without what events say: failures, warnings and notes. Errors: Diagnose().
[[nodiscard]] Result<Diagnosis> DiagnoseFiles(const std::string& run_dir, WallTime now,
                                              const JobFinder& find = {});
// Errors: ReadRunState() and ListAttempts(). Without `find` SLURM is not asked.
[[nodiscard]] Result<Diagnosis> Diagnose(const std::string& run_dir, WallTime now,
                                         const JobFinder& find = {});
// For people. Pure.
[[nodiscard]] std::string DiagnosisText(const Diagnosis& diagnosis);

// Prints it. What the process exits with: as of RunStatusCommand().
Result<int> RunDoctorCommand(const std::string& run_dir);

}  // namespace gaccd
