#include "daemon/train/done_marker.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "collectives/base/files.h"
#include "collectives/base/strings.h"
#include "collectives/base/ticks.h"
#include "collectives/bootstrap/agree.h"
#include "daemon/checkpoint/ckpt_command.h"
#include "daemon/checkpoint/generations.h"
#include "daemon/checkpoint/manifest.h"
#include "daemon/checkpoint/train_state.h"
#include "daemon/config/job_text.h"
#include "daemon/data/update_schedule.h"
#include "daemon/eval/best_evaluation.h"
#include "daemon/rundir/safe_place.h"
#include "daemon/train/storage_limits.h"

namespace gaccd {
namespace {

using Next = DoneRun::Next;

constexpr const char* kRaise = "raise --epochs or --max-updates to continue";

std::string DoneMarkerPath(const std::string& run_dir) { return run_dir + "/DONE"; }

// A start in a complete run folder.
struct Request {
  const Flags& flags;
  const Job& job;
  const Plan& plan;
  const std::string& run_dir;
  const TickFunction& tick;
};

Status Refuse(const Request& request, std::string_view why) {
  return {ErrorKind::kConfig, StrCat("the run in '", request.run_dir, "' is complete, and ", why,
                                     "; give another --run-dir")};
}

Status CheckSameJob(const Request& request, const Job& was, std::string_view and_why = "") {
  const auto [other_run, reported] = CompareJobs(was, request.job);
  if (other_run.empty() && reported.empty()) return Status::Ok();
  return Refuse(request,
                StrCat("was trained by another job (its job -> this job): ", other_run,
                       other_run.empty() || reported.empty() ? "" : "; ", reported, and_why));
}

// Reading takes longer than writing: the whole checkpoint, and again if there are averages.
std::chrono::milliseconds ExportLimit(const Request& request, const Manifest& newest) {
  std::uint64_t bytes = 0;
  for (const ShardRecord& shard : newest.shards) bytes += shard.bytes;
  return SaveLimit(std::chrono::seconds(request.flags.bound), 3.0 * static_cast<double>(bytes));
}

Result<DoneRun> SaveWeights(const Request& request, const Manifest& newest, std::string text) {
  if (!request.flags.save_weights) return DoneRun{Next::kNothing, std::move(text)};
  const auto output = std::make_shared<CkptOutput>();
  const CkptRequest command{.action = CkptAction::kExport,
                            .path = request.run_dir,
                            .out = *request.flags.save_weights,
                            .out_modes = request.flags.group_access ? kGroupMayRead : Modes{}};
  GACCD_RETURN_IF_ERROR(WriteWithin(ExportLimit(request, newest), command.out, request.tick,
                                    [command, output]() -> Status {
                                      GACCD_ASSIGN_OR_RETURN(*output, RunCkptCommand(command));
                                      return output->verdict;
                                    }));
  const std::string_view saved(output->text);
  return DoneRun{Next::kNothing, StrCat(text, "\n", saved.substr(0, saved.size() - 1))};
}

Result<Job> JobOf(const Request& request, const std::string& done) {
  return ParseJobText(done.substr(std::min(done.find('\n'), done.size())),
                      DoneMarkerPath(request.run_dir));
}

// Only the job in DONE can be checked; a DONE created by hand has none.
Result<DoneRun> WithoutCheckpoint(const Request& request, const std::string& done,
                                  std::string text) {
  const auto was = JobOf(request, done);
  if (was.ok()) {
    GACCD_RETURN_IF_ERROR(CheckSameJob(request, *was, "; it has no checkpoint to continue from"));
  }
  if (request.flags.save_weights) {
    return Refuse(request, "has no checkpoint to write --save-weights from");
  }
  return DoneRun{Next::kNothing, text +
                                     "it has no checkpoint to continue from: another "
                                     "--run-dir begins a new training"};
}

// Ok if the job, with more updates, continues from the state in the manifest.
Status CheckContinues(const Request& request, const Manifest& from, const Job& saved) {
  GACCD_RETURN_IF_ERROR(CheckSameRun(saved, request.job));
  return CheckSameSamples(from, saved, request.job, request.plan, from.cursor.dataset_samples);
}

// done: the content of DONE. Its job ended the run, also if nothing was saved after its start; a
// DONE created by hand has none.
Result<DoneRun> Compare(const Request& request, const Manifest& newest, const std::string& done,
                        std::string text) {
  GACCD_ASSIGN_OR_RETURN(Job was, SavedJob(newest));
  const auto ended = JobOf(request, done);
  if (ended.ok() && CompareJobs(was, *ended).other_run.empty()) was = *ended;
  const std::int64_t batch = newest.plan->effective_batch();
  const std::int64_t samples = newest.cursor.dataset_samples;
  GACCD_ASSIGN_OR_RETURN(const UpdateSchedule before,
                         MakeUpdateSchedule(was, *newest.plan, samples));
  GACCD_ASSIGN_OR_RETURN(const UpdateSchedule now,
                         MakeUpdateSchedule(request.job, *newest.plan, samples));
  const RunCursor& end = newest.cursor;
  const bool early = end.step < before.updates() && PatienceIsOver(was.evaluation, end.best);
  const bool waits = early && PatienceIsOver(request.job.evaluation, end.best);
  if (!waits && now.updates() > (early ? end.step : before.updates())) {
    const Status same = CheckContinues(request, newest, was);
    return same.ok() ? Result<DoneRun>(DoneRun{Next::kContinue}) : Refuse(request, same.message());
  }
  if (waits || now.updates() == before.updates()) {
    was.epochs = request.job.epochs;
    was.max_updates = request.job.max_updates;
  }
  GACCD_RETURN_IF_ERROR(CheckSameJob(request, was));
  if (request.plan.effective_batch() != batch) {
    return Refuse(request, StrCat("has an effective batch of ", batch, ", this job has ",
                                  request.plan.effective_batch()));
  }
  text += waits ? "raise evaluation.patience to continue" : kRaise;
  return SaveWeights(request, newest, std::move(text));
}

// kIo if there is none but one that cannot be read.
Result<std::optional<Manifest>> NewestManifest(const std::string& folder) {
  GACCD_ASSIGN_OR_RETURN(const auto all, ListGenerations(folder));
  Status unreadable;
  for (const Generation& one : all) {
    auto manifest = ReadManifest(folder, one);
    const Status status = manifest.ok() ? CheckedJob(*manifest).status() : manifest.status();
    if (status.ok()) return std::optional<Manifest>(*std::move(manifest));
    if (status.kind() == ErrorKind::kConfig) return status.WithContext(one.name());
    if (one.committed && !manifest.ok() && manifest.status().kind() == ErrorKind::kIo &&
        unreadable.ok()) {
      unreadable = manifest.status();
    }
  }
  if (!unreadable.ok()) return unreadable;
  return std::optional<Manifest>();
}

// Checks that the target of --resume exists, whether or not anything is trained from it.
Status CheckResume(const Request& request) {
  std::string path = request.flags.resume;
  if (path == "auto") return Status::Ok();
  if (path == "never")
    return Refuse(request, StrCat("'never' would train over its checkpoints unless ",
                                  DoneMarkerPath(request.run_dir), " is removed"));
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  if (const auto generation = ParseGenerationName(path.substr(path.rfind('/') + 1))) {
    return ReadManifest(ParentFolder(path), *generation).status();
  }
  GACCD_ASSIGN_OR_RETURN(const auto newest, NewestManifest(path + "/ckpt"));
  if (newest) return Status::Ok();
  return {ErrorKind::kData, StrCat("'", path, "/ckpt' holds no checkpoint that is complete")};
}

Result<DoneRun> FindDoneRun(const Request& request, bool requeued) {
  GACCD_RETURN_IF_ERROR(CheckSafeRunFolder(request.run_dir));
  const std::string path = DoneMarkerPath(request.run_dir);
  if (!PathExists(path)) return DoneRun{};
  if (!requeued) GACCD_RETURN_IF_ERROR(CheckResume(request).WithContext("--resume"));
  // The content is for users: an empty or unreadable file counts, too.
  const auto read = ReadStart(path, kMaxTextBytes);
  const std::string done = read.ok() ? *read : std::string();
  const std::string line = done.substr(0, done.find('\n'));
  std::string text = StrCat("this run is complete (", line.empty() ? "its length is unknown" : line,
                            "): nothing to do; ");
  GACCD_ASSIGN_OR_RETURN(const auto newest, NewestManifest(request.run_dir + "/ckpt"));
  return newest ? Compare(request, *newest, done, std::move(text))
                : WithoutCheckpoint(request, done, std::move(text));
}

}  // namespace

Result<DoneRun> FindDone(Communicator& comm, const Flags& flags, const Job& job, const Plan& plan,
                         bool requeued) {
  constexpr std::string_view kContinue = "+";  // no text begins with this character
  Result<std::string> mine = std::string();
  const Agreement looked = WorkTogether(comm, [&](const TickFunction& tick) {
    if (comm.rank() != 0) return Status::Ok();
    auto found = FindDoneRun({flags, job, plan, *flags.run_dir, tick}, requeued);
    if (!found.ok()) {
      mine = found.status();
    } else {
      mine = found->next == Next::kContinue ? std::string(kContinue) : std::move(found->text);
    }
    return Status::Ok();  // errors are shared below, without the name of the rank
  });
  GACCD_RETURN_IF_ERROR(looked.status);
  GACCD_ASSIGN_OR_RETURN(std::string shared, ShareFromRank(comm, 0, mine));
  if (shared.empty()) return DoneRun{};
  if (shared == kContinue) return DoneRun{Next::kContinue};
  return DoneRun{Next::kNothing, std::move(shared)};
}

Status CheckNotStopped(const std::string& run_dir) {
  const std::string path = run_dir + "/STOP";
  if (!PathExists(path)) return {};
  return {ErrorKind::kNoRequeue,
          StrCat("stopped by the file STOP before it began; remove ", path, " to train")};
}

Status MarkDone(const std::string& run_dir, const std::string& text, const Job& job,
                unsigned mode) {
  GACCD_RETURN_IF_ERROR(ReplaceFile(DoneMarkerPath(run_dir), StrCat(text, "\n\n", JobText(job)),
                                    /*durable=*/true, mode));
  if (::unlink((run_dir + "/STOP").c_str()) == 0 || errno == ENOENT) return {};
  return ErrnoStatus("cannot remove", run_dir + "/STOP");
}

Status RemoveDone(const std::string& run_dir) {
  if (::unlink(DoneMarkerPath(run_dir).c_str()) == 0) return SyncFolder(run_dir);
  return errno == ENOENT ? Status::Ok() : ErrnoStatus("cannot remove", DoneMarkerPath(run_dir));
}

}  // namespace gaccd
