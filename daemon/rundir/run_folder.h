// The run folder of one run, made by rank 0:
//
//   <run_dir>/
//     job.txtpb plan.txtpb        what was resolved, newest attempt; relaunchable
//     STATUS.json                 what the run does now
//     .owner                      who writes here (folder_owner.h)
//     attempts/latest -> 001-8123456
//     attempts/001-8123456/       one folder an attempt, never written by another one
//       job.txtpb plan.txtpb events.jsonl ranks.tsv env.json verdict.json log/ crash/ ev/
//       .space                    while it runs: room for how it ends (spare_space.h)
//
// Folders are made 0700 and files 0600, or 0750 and 0640 with group_access; what was there before
// keeps its mode.
//
// An attempt is called NNN-<job>: NNN = SLURM_RESTART_COUNT and the SLURM job id, or outside SLURM
// the next free number and local-<pid>. A second run of the same SLURM job gets "NNN-<job>.2", ...
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "collectives/base/result.h"
#include "daemon/rundir/folder_owner.h"

namespace gaccd {

// Where the attempt's name comes from.
struct AttemptSource {
  std::optional<std::string> attempt_dir;   // GACCD_ATTEMPT_DIR, made by the batch script
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
  // Errors: kIo with the path and the reason when something cannot be made or written; kConfig when
  // another live run owns the folder, when it is in a place that is not safe (safe_place.h), or
  // GACCD_ATTEMPT_DIR does not lie in <run_dir>/attempts.
  // A job.txtpb in run_dir that gaccd did not write is left as it is.
  static Result<RunFolder> Create(const RunFolderRequest& request);

  [[nodiscard]] const std::string& run_dir() const { return run_dir_; }          // absolute
  [[nodiscard]] const std::string& attempt_dir() const { return attempt_dir_; }  // absolute
  [[nodiscard]] std::string log_dir() const { return attempt_dir_ + "/log"; }
  [[nodiscard]] int attempt() const { return attempt_; }
  [[nodiscard]] const std::string& job() const { return job_; }  // SLURM job id, "local-<pid>"
  [[nodiscard]] FolderOwner& owner() { return owner_; }
  // Writes job.txtpb and plan.txtpb, as Create() does, where they are known only later. An empty
  // text is not written.
  Status WriteInputs(const std::string& job_text, const std::string& plan_text) const;
  // The event file of this attempt, created by Create(), open for appending. Once.
  [[nodiscard]] FileDescriptor TakeEventFile() { return std::move(event_file_); }

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

// The name of the newest attempt of a run folder, as attempts/latest tells; empty: there is none.
[[nodiscard]] std::string LatestAttempt(const std::string& run_dir);
// The folders of attempts in a run folder; 0 where they cannot be read.
[[nodiscard]] std::int64_t CountAttempts(const std::string& run_dir);

}  // namespace gaccd
