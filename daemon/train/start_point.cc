#include "daemon/train/start_point.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "collectives/base/files.h"
#include "collectives/base/strings.h"
#include "daemon/checkpoint/train_state.h"
#include "daemon/telemetry/log.h"

namespace gaccd {
namespace {

AcceptManifest Accept(const SavedRun& run) {
  return [&run](const Manifest& manifest, const Job& saved) -> Status {
    GACCD_RETURN_IF_ERROR(CheckSameRun(saved, run.job));
    GACCD_RETURN_IF_ERROR(CheckParameters(manifest, run.model.layout()));
    GACCD_RETURN_IF_ERROR(
        CheckSameGroups(manifest, run.model.layout(), saved.optimizer, run.job.optimizer));
    GACCD_RETURN_IF_ERROR(CheckFits(manifest, run.model.layout(), run.optimizer_elements()));
    return CheckSameSamples(manifest, saved, run.job, run.plan, run.dataset_samples);
  };
}

std::string Stripped(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

// For a folder whose checkpoints were all refused.
Status NoneUsable(const std::string& folder, const LoadOutcome& outcome, std::string_view advice) {
  const std::string start = StrCat("'", folder, "' has ", outcome.damaged, " checkpoints");
  if (!outcome.unreadable.empty()) {
    return {ErrorKind::kIo,
            StrCat(start, ", none can be used, and one that cannot be read may be intact: ",
                   outcome.unreadable)};
  }
  return {ErrorKind::kData,
          StrCat(start, " and none is intact", advice, ": ", outcome.refused.front())};
}

// For an explicit path: it must contain an intact checkpoint.
Result<ResumePoint> ResumeFrom(Communicator& comm, const SavedRun& run, const std::string& from) {
  const std::string path = Stripped(from);
  ResumePoint point;
  if (auto generation = ParseGenerationName(path.substr(path.rfind('/') + 1))) {
    generation->committed = true;
    auto state = LoadGeneration(comm, ParentFolder(path), *generation, Accept(run));
    if (!state.ok()) return state.status().WithContext("--resume");
    point.state = *std::move(state);
    point.folder = ParentFolder(path);
    return point;
  }
  GACCD_ASSIGN_OR_RETURN(LoadOutcome outcome, LoadNewest(comm, path + "/ckpt", Accept(run)));
  if (!outcome.state && outcome.damaged > 0) {
    return NoneUsable(path + "/ckpt", outcome, "").WithContext("--resume");
  }
  if (!outcome.state) {
    return Status(ErrorKind::kData, PathExists(path)
                                        ? StrCat("--resume: '", path, "/ckpt' holds no checkpoint")
                                        : StrCat("--resume: there is no run folder '", path, "'"));
  }
  return ResumePoint{std::move(outcome.state), path + "/ckpt", std::move(outcome.refused)};
}

Result<ResumePoint> ResumeAuto(Communicator& comm, const SavedRun& run, const std::string& folder,
                               std::int64_t since) {
  GACCD_ASSIGN_OR_RETURN(LoadOutcome outcome, LoadNewest(comm, folder, Accept(run), since));
  if (!outcome.state && outcome.damaged > 0) {
    return NoneUsable(folder, outcome, "; --resume=never starts from scratch");
  }
  return ResumePoint{std::move(outcome.state), folder, std::move(outcome.refused)};
}

}  // namespace

Result<ResumePoint> FindResumePoint(Communicator& comm, const SavedRun& run,
                                    const ResumeSource& source) {
  if (source.job_since && source.from != "auto") {
    GACCD_ASSIGN_OR_RETURN(ResumePoint own,
                           ResumeAuto(comm, run, source.folder, *source.job_since));
    if (own.state) return own;
  }
  if (source.from == "never") return ResumePoint{};
  if (source.from != "auto") return ResumeFrom(comm, run, source.from);
  const auto& [since, began, back_since, back_to] = source.training;
  GACCD_ASSIGN_OR_RETURN(ResumePoint own,
                         ResumeAuto(comm, run, source.folder, std::max(since, back_since)));
  if (own.state) return own;
  if (back_since > 0) {
    GACCD_ASSIGN_OR_RETURN(own, ResumeFrom(comm, run, StrCat(source.folder, "/", back_to)));
    own.notes.push_back(StrCat("those after ", back_to,
                               ": an earlier start went back to it and has saved nothing"));
    return own;
  }
  if (began.empty() || began == "never") return own;
  return ResumeFrom(comm, run, began);
}

bool ResumeSource::IsOwn(const ResumePoint& found) const {
  std::error_code error;
  return std::filesystem::equivalent(found.folder, folder, error);
}

std::string ResumeSource::GoesBackTo(const ResumePoint& found) const {
  const std::string path = Stripped(from);
  if (!found.state || !ParseGenerationName(path.substr(path.rfind('/') + 1))) return {};
  const std::int64_t epoch = found.state->generation.epoch;
  const bool of_job = job_since && epoch >= *job_since;  // not found by `from`
  if (of_job || epoch < training.since || !IsOwn(found)) return {};
  return found.state->generation.name();
}

std::string ResumeSource::NewTraining(const ResumePoint& found) const {
  if (from == "auto") return {};
  if (!found.state) return "never";
  if (IsOwn(found) && found.state->generation.epoch >= training.since) return {};
  std::error_code error;
  const std::filesystem::path path = std::filesystem::absolute(from, error);
  return error ? from : path.string();
}

std::string EarlierTrainingWarning(const std::string& folder, const TrainingStart& training,
                                   bool again) {
  const auto all = ListGenerations(folder);
  if (!all.ok()) return {};
  const auto earlier = std::ranges::count_if(
      *all, [&](const Generation& one) { return one.committed && one.epoch < training.since; });
  if (earlier == 0) return {};
  const std::string start =
      again ? StrCat("the newest training there, begun with --resume=", training.from,
                     ", has saved nothing and begins again; ")
            : std::string();
  return StrCat("'", folder, "' holds ", Counted(earlier, "checkpoint"),
                " of an earlier training: ", start,
                "--keep does not count them; only 'gaccd ckpt prune' removes them");
}

Result<StartPoint> RestoreState(Engine& engine, const LoadedState& state, const SavedRun& run,
                                std::int64_t updates, int rank) {
  const RunCursor& cursor = state.manifest.cursor;
  if (cursor.step > updates) {
    return Status(ErrorKind::kConfig,
                  StrCat("the checkpoint is at update ", cursor.step, ", the job ends after ",
                         updates, "; --resume=never starts from scratch"));
  }
  GACCD_RETURN_IF_ERROR(engine.SetParameters(LoadedFloats(state, kParametersBuffer)));
  GACCD_RETURN_IF_ERROR(
      engine.SetOptimizer(LoadedFloats(state, kOptimizerBuffer), cursor.optimizer_updates));
  StartPoint start{
      .updates = cursor.step, .samples = cursor.samples, .at_boundary = cursor.micro_step == 0};
  if (start.at_boundary) return start;
  if (const Status same =
          CheckSamePartialUpdate(state.manifest, state.job, run.job, run.plan, run.by_length());
      same.ok()) {
    const std::span<const float> accumulators = LoadedFloats(state, kAccumulatorsBuffer);
    start.partial = {.micro_step = cursor.micro_step,
                     .accumulators = {accumulators.begin(), accumulators.end()},
                     .share = state.manifest.shards[static_cast<std::size_t>(rank)].partial};
  } else if (rank == 0) {
    LogWarning(StrCat("update ", cursor.step + 1, " restarts, ", cursor.micro_step,
                      " micro-steps of it are lost: ", same.message()));
  }
  return start;
}

}  // namespace gaccd
