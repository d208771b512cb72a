// Events at the end of a run: the record of a failed rank, and the verdict.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/telemetry/event_record.h"

namespace gaccd {

// A rank suspected to be the cause of a failure, as the heartbeat found it lost.
struct Suspect {
  int rank = 0;
  std::string host;
  bool ended = false;             // its process does not exist
  std::int64_t memory_bytes = 0;  // resident, at its last sign of life; 0: not known
};

// Facts about a failure besides its message; all are optional.
struct FailureFacts {
  int rank = -1;                          // the reporting rank
  std::vector<Suspect> suspects;          // lost ranks in order of loss
  std::vector<int> gave_up;               // ranks that exited because of others
  std::vector<std::string> hosts = {};    // by rank
  std::int64_t memory_planned_bytes = 0;  // of a rank; 0: not known
  std::string collective;                 // current collective of this rank: "all_reduce_sum"
  std::optional<std::int64_t> sequence;   // number of that collective, from 1
  bool silent = false;  // the suspect was silent: it, or this rank, may be disconnected
};

// The record of a failed rank.
struct Failure {
  static constexpr const char* kEvent = "failure";

  int exit = 0;    // exit code; 0 after a signal
  int signal = 0;  // SIGSEGV, ...; 0: none
  std::int64_t step = 0;
  std::string phase;
  std::int64_t micro_step = 0;
  std::string collective;
  std::optional<std::int64_t> sequence;
  std::string message;
  std::vector<int> lost_ranks = {};  // lost ranks seen by this rank, if another one is the cause

  static void VisitFields(auto& fields, auto& failure) {
    fields.NotZero("exit", failure.exit);
    fields.NotZero("signal", failure.signal);
    fields("step", failure.step);
    fields.Text("phase", failure.phase, kMaxName);
    fields("micro_step", failure.micro_step);
    fields.Text("collective", failure.collective, kMaxName);
    fields("sequence", failure.sequence);
    fields.Text("msg", failure.message, kMaxMessage);
    fields.List("lost_ranks", failure.lost_ranks, kMaxList);
  }
};

// The end of the run. verdict: a Name(NextStep), attempt_verdict.h.
struct Verdict {
  static constexpr const char* kEvent = "verdict";

  std::string verdict;
  int exit = 0;
  std::string reason;  // empty if done, unless it ended before the last update
  std::int64_t last_step = 0;
  std::int64_t samples_total = 0;
  double dur_s = 0;
  std::string suspect_hosts;             // "n3,n7", as for sbatch --exclude; empty: none
  std::optional<Suspect> first;          // the first suspect
  std::optional<Failure> first_failure;  // its record, if any
  std::vector<int> lost_ranks = {};      // all suspects
  bool killed = false;                   // the first suspect has ended without a record
  std::int64_t memory_planned_bytes = 0;

  [[nodiscard]] std::string_view level() const { return exit == 0 ? "info" : "error"; }

  static void VisitFields(auto& fields, auto& verdict) {
    fields.Text("verdict", verdict.verdict, kMaxWord);
    fields("exit", verdict.exit);
    fields.Text("reason", verdict.reason, kMaxMessage);
    fields("last_step", verdict.last_step);
    fields("samples_total", verdict.samples_total);
    fields("dur_s", verdict.dur_s);
    fields.Text("suspect_hosts", verdict.suspect_hosts, kMaxList);
    fields.Group("first_rank", verdict.first, [&](auto& first) {
      fields("first_rank", first.rank);
      fields.Text("first_host", first.host, kMaxName);
      fields.Group({"first_exit", "first_signal", "first_msg"}, verdict.first_failure,
                   [&](auto& failure) {
                     fields.NotZero("first_exit", failure.exit);
                     fields.NotZero("first_signal", failure.signal);
                     fields.Text("first_msg", failure.message, kMaxList / 2);
                   });
      fields.List("lost_ranks", verdict.lost_ranks, kMaxList / 2);
      fields.When(verdict.killed, [&] { fields("first_killed", verdict.killed); });
      fields.NotZero("first_memory_bytes", first.memory_bytes);
      fields.NotZero("memory_planned_bytes", verdict.memory_planned_bytes);
    });
  }
};

}  // namespace gaccd
