// `gaccd doctor RUN`: why a run ended or is stuck, suspected hosts, and what to do.
#pragma once

#include <string>
#include <vector>

#include "collectives/base/result.h"
#include "daemon/inspect/watch/advice.h"
#include "daemon/inspect/watch/event.h"
#include "daemon/inspect/watch/run_state.h"
#include "slurm/commands.h"

namespace gaccd {

// The failure of a rank.
struct RankFailure {
  WallTime at;
  std::int64_t rank = 0;
  std::string host;
  std::int64_t step = 0;
  std::string what;  // "exit 65", "signal 11", with phase and collective; one line, as `message`
  std::string message;
  bool caused_by_others = false;  // only because it lost other ranks
  std::int64_t more_ranks = 0;    // number of others with the same exit code and message
};

// From an event "failure".
[[nodiscard]] RankFailure ParseFailure(const Event& event);
// Counts `failure` in the element of `known` with the same exit code and message; false if there is
// none. An error that ranks agree on is one failure, although each of them records it.
bool CountWithSame(const RankFailure& failure, std::vector<RankFailure>* known);

// A host suspected by verdicts, and in how many attempts.
struct SuspectHost {
  std::string host;
  int attempts = 0;
};

struct Diagnosis {
  RunState state;  // with the suspects of the attempt `newest`
  std::size_t attempts = 0;
  // The name of the attempt that `state` describes: the newest, unless that was refused because
  // this one was running.
  std::string newest;
  std::vector<RankFailure> failures;  // of this attempt, by time
  std::vector<std::string> warnings;  // the last of its events, oldest first
  std::string srun_errors;            // SrunErrors()
  std::vector<SuspectHost> suspects;  // of this attempt first, then by attempts
  std::vector<Advice> advice;         // in order of execution
  std::vector<std::string> notes;     // problems of the files
};

// The diagnosis without failures, warnings and notes, which need the events. Errors: Diagnose().
[[nodiscard]] Result<Diagnosis> DiagnoseFiles(const std::string& run_dir, WallTime now,
                                              const JobFinder& find = {});
// Errors: ReadRunState() and ListAttempts(). find: null does not query SLURM.
[[nodiscard]] Result<Diagnosis> Diagnose(const std::string& run_dir, WallTime now,
                                         const JobFinder& find = {});
// The diagnosis as text. Pure.
[[nodiscard]] std::string DiagnosisText(const Diagnosis& diagnosis);

// Prints the diagnosis. Returns the exit code of the process, as RunStatusCommand().
Result<int> RunDoctorCommand(const std::string& run_dir);

}  // namespace gaccd
