// RunFolder: the folder of one run, created by rank 0:
//
//   <run_dir>/
//     job.txtpb plan.txtpb        resolved job and plan of the newest attempt; relaunchable
//     STATUS.json                 the current state of the run
//     .owner                      the owner (folder_owner.h)
//     attempts/latest -> 001-8123456
//     attempts/001-8123456/       one folder per attempt, only written by that attempt
//       job.txtpb plan.txtpb events.jsonl ranks.tsv env.json verdict.json log/ crash/ ev/
//       .space                    while it runs: reserved disk space for its end
//
// Folders have mode 0700 and files 0600, or 0750 and 0640 with group_access; existing entries keep
// their mode.
//
// The name of an attempt is NNN-<job>: NNN = SLURM_RESTART_COUNT and the SLURM job id, or outside
// SLURM the next free number and local-<pid>. A second run of the same SLURM job gets
// "NNN-<job>.2", ...
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "collectives/base/result.h"
#include "daemon/rundir/folder_owner.h"

namespace gaccd {

// Source of the attempt's name.
struct AttemptSource {
  std::optional<std::string> attempt_dir;   // GACCD_ATTEMPT_DIR, created by the batch script
  std::optional<std::string> slurm_job_id;  // SLURM_JOB_ID
  int restart_count = 0;                    // SLURM_RESTART_COUNT
  std::int64_t step_id = -1;                // SLURM_STEP_ID; -1: not in a step
};

struct RunFolderRequest {
  std::string run_dir;
  std::string job_text;   // resolved job, text proto
  std::string plan_text;  // resolved plan, text proto
  AttemptSource attempt;
  Modes modes;
  OwnerPatience patience = {};
};

class RunFolder {
 public:
  // kIo, with the path and the reason, if something cannot be created or written; kConfig if
  // another active run owns the folder, it is in an unsafe place (safe_place.h), or
  // GACCD_ATTEMPT_DIR is not in <run_dir>/attempts. A job.txtpb in run_dir that gaccd did not write
  // is not changed.
  static Result<RunFolder> Create(const RunFolderRequest& request);

  [[nodiscard]] const std::string& run_dir() const { return run_dir_; }          // absolute
  [[nodiscard]] const std::string& attempt_dir() const { return attempt_dir_; }  // absolute
  [[nodiscard]] std::string log_dir() const { return attempt_dir_ + "/log"; }
  [[nodiscard]] int attempt() const { return attempt_; }
  [[nodiscard]] const std::string& job() const { return job_; }  // SLURM job id, "local-<pid>"
  [[nodiscard]] FolderOwner& owner() { return owner_; }
  // Writes job.txtpb and plan.txtpb, as Create() does, if they are only known later. Empty texts
  // are not written.
  Status WriteInputs(const std::string& job_text, const std::string& plan_text) const;
  // The event file of this attempt, created by Create(), open for appending. May be called once.
  [[nodiscard]] FileDescriptor ReleaseEventFile() { return std::move(event_file_); }

 private:
  RunFolder(std::string run_dir, FolderOwner owner, Modes modes)
      : run_dir_(std::move(run_dir)), owner_(std::move(owner)), modes_(modes) {}

  Status MakeAttempt(const AttemptSource& source);
  Status TryAttempt(const std::string& path, bool* taken);

  std::string run_dir_;
  std::string attempt_dir_;
  int attempt_ = 0;
  std::string job_;
  FolderOwner owner_;
  Modes modes_;
  FileDescriptor event_file_;
};

// The name of the newest attempt of a run folder, the target of attempts/latest; empty: none.
[[nodiscard]] std::string LatestAttempt(const std::string& run_dir);
// The folders of attempts in a run folder; 0 where they cannot be read.
[[nodiscard]] std::int64_t CountAttempts(const std::string& run_dir);

// The name of an attempt's folder, NNN-<job>: the number of the attempt, three to nine digits, and
// its job. A second run of the same SLURM job has the suffix ".2", and so on.
struct AttemptName {
  int number = 0;
  std::string job;  // "8123456", "local-4711"; without the suffix
};

// Parses "001-8123456", "001-8123456.2"; empty for any other name.
[[nodiscard]] std::optional<AttemptName> ParseAttemptName(std::string_view name);
[[nodiscard]] std::string FormatAttemptName(int number, std::string_view job);

// Reserves a few blocks of the run folder's disk at the start of an attempt, so that the verdict,
// STATUS.json and the ledger can be written even if the disk is full at its end.

// Creates <attempt_dir>/.space, 64 KiB. kIo if the disk is full.
[[nodiscard]] Status ReserveDiskSpace(const std::string& attempt_dir, unsigned mode);

// Removes it. Called by the process that writes the end of the attempt: rank 0, a rank that
// replaces it, or `gaccd verdict`. A missing file is not an error.
void ReleaseDiskSpace(const std::string& attempt_dir);

}  // namespace gaccd
