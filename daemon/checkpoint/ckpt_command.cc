#include "daemon/checkpoint/ckpt_command.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <ctime>
#include <iterator>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "collectives/base/strings.h"
#include "collectives/base/thread.h"
#include "daemon/checkpoint/lease.h"
#include "daemon/checkpoint/load.h"
#include "daemon/checkpoint/manifest.h"
#include "daemon/checkpoint/saved_weights.h"
#include "daemon/config/arguments.h"
#include "daemon/config/flat_json.h"
#include "daemon/data/formats/column_names.h"
#include "daemon/models/network.h"
#include "daemon/rundir/folder_owner.h"
#include "daemon/tensor/flat_layout.h"
#include "daemon/weights/safetensors.h"
#include "daemon/weights/transformers_folder.h"

namespace gaccd {
namespace {

std::string UtcTime(std::int64_t seconds) {
  const std::time_t time = seconds;
  std::tm parts{};
  char text[32] = "-";
  if (::gmtime_r(&time, &parts) != nullptr) {
    std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  }
  return text;
}

std::uint64_t TotalBytes(const Manifest& manifest) {
  std::uint64_t bytes = 0;
  for (const ShardRecord& shard : manifest.shards) bytes += shard.bytes;
  return bytes;
}

std::string SizeText(std::uint64_t bytes) {
  constexpr std::uint64_t kMegabyte = 1'000'000;
  if (bytes < kMegabyte) return StrCat((bytes + 500) / 1000, " kB");
  return Megabytes(static_cast<std::int64_t>(bytes));
}

std::string Row(const std::array<std::string, 5>& cells) {
  constexpr std::array<int, 4> kWidths = {40, 6, 12, 20};
  std::string row;
  for (std::size_t i = 0; i < kWidths.size(); ++i) {
    row += cells[i];
    const auto width = static_cast<std::size_t>(kWidths[i]);
    row.append(cells[i].size() < width ? width - cells[i].size() : 0, ' ');
    row += "  ";
  }
  return row + cells[4] + "\n";
}

// One checkpoint as shown by `ls` and `verify`. state: "complete" (its files exist with the right
// sizes), "ok" (every byte is correct), "damaged", "unsupported" (of another version of gaccd),
// "unfinished" or "removed" (while it was read).
struct CheckpointSummary {
  Generation generation;
  std::optional<Manifest> manifest;
  std::string_view state;
  std::string reason;  // for "damaged" and "unsupported"
  // Set if it is FindBest(): the newest manifest. Its own may be older than its evaluation.
  const Manifest* best = nullptr;
};

// "loss 0.303849", of the newest manifest of a folder.
std::string BestText(const Manifest& newest) {
  const auto job = SavedJob(newest);
  return StrCat(job.ok() ? job->evaluation.metric : "", " ", newest.cursor.best.value);
}

std::string_view BadState(const Status& status) {
  return status.kind() == ErrorKind::kConfig ? "unsupported" : "damaged";
}

CheckpointSummary Inspect(const std::string& folder, const Generation& one) {
  if (!one.committed) return {one, {}, "unfinished", ""};
  auto manifest = ReadManifest(folder, one);
  const Status complete = manifest.ok() ? CheckComplete(folder, one) : manifest.status();
  CheckpointSummary summary{one, {}, "complete", ""};
  if (manifest.ok()) summary.manifest = *std::move(manifest);
  if (complete.ok()) return summary;
  if (!IsCommitted(folder, one)) return {one, {}, "removed", ""};
  summary.state = BadState(complete);
  summary.reason = complete.message();
  return summary;
}

std::string StateText(const CheckpointSummary& summary) {
  if (summary.best != nullptr) {
    return StrCat(summary.state, ", the best: ", BestText(*summary.best));
  }
  return summary.reason.empty() ? std::string(summary.state)
                                : StrCat(summary.state, ": ", summary.reason);
}

std::string SummaryJson(const CheckpointSummary& summary) {
  JsonObject json;
  json("generation", summary.generation.name());
  json("step", summary.generation.step);
  json("micro_step", summary.generation.micro_step);
  json("writer_epoch", summary.generation.epoch);
  json("state", summary.state);
  if (summary.manifest) {
    json("ranks", summary.manifest->world());
    json("bytes", TotalBytes(*summary.manifest));
    json("created", UtcTime(summary.manifest->created_s));
  }
  if (!summary.reason.empty()) json("reason", summary.reason);
  if (summary.best != nullptr) {
    json("best", true);
    json("best_value", summary.best->cursor.best.value);
  }
  return json.FinishLine();
}

CkptOutput List(const GenerationPlace& place, bool json) {
  std::string text;
  const auto best = place.one ? std::nullopt : FindBest(place.folder, place.generations);
  const auto newest = NewestReadable(place.folder, place.generations);
  for (const Generation& one : place.generations) {
    CheckpointSummary summary = Inspect(place.folder, one);
    if (one == best && newest) summary.best = &*newest;
    if (json) {
      text += SummaryJson(summary);
    } else if (summary.manifest) {
      text += Row({one.name(), std::to_string(summary.manifest->world()),
                   SizeText(TotalBytes(*summary.manifest)), UtcTime(summary.manifest->created_s),
                   StateText(summary)});
    } else {
      text += Row({one.name(), "-", "-", "-", StateText(summary)});
    }
  }
  if (json) return {std::move(text), {}};
  if (place.generations.empty()) return {"no checkpoints\n", {}};
  return {StrCat(Row({"checkpoint", "ranks", "size", "written", "state"}), text,
                 "complete: every file has its expected size; ckpt verify checks the contents\n"),
          {}};
}

CkptOutput Verify(const GenerationPlace& place, bool json) {
  CkptOutput output;
  int checked = 0;
  int damaged = 0;
  Status unsupported;
  for (const Generation& one : place.generations) {
    CheckpointSummary summary{one, {}, "unfinished", ""};
    if (one.committed || place.one) {
      const Status status = VerifyGeneration(place.folder, one);
      const bool removed = !status.ok() && !place.one && !IsCommitted(place.folder, one);
      if (!removed) ++checked;
      summary.state = status.ok() ? "ok" : removed ? "removed" : BadState(status);
      if (summary.state == "damaged") ++damaged;
      if (summary.state == "unsupported") unsupported = status;
      if (!status.ok() && !removed) summary.reason = status.message();
    }
    output.text += json ? SummaryJson(summary) : StrCat(one.name(), ": ", StateText(summary), "\n");
  }
  if (checked == 0) {
    output.verdict = {ErrorKind::kData, StrCat("'", place.folder, "' holds no checkpoint")};
  } else if (damaged > 0) {
    output.verdict = {ErrorKind::kData,
                      StrCat(damaged, " of ", checked, " checkpoints are damaged")};
  } else {
    output.verdict = unsupported;
  }
  return output;
}

// Ensures that no other process writes in the checkpoint folder, and that no run that owns the
// folder above is about to read its resume point.
struct PruneLocks {
  std::optional<FolderOwner> run;
  WriterLease lease;

  static Result<std::shared_ptr<const PruneLocks>> Acquire(const std::string& folder) {
    const OwnerName me = MakeOwnerName("gaccd-ckpt-prune", 0);
    std::optional<FolderOwner> run;
    if (PathExists(ParentFolder(folder) + "/.owner")) {
      GACCD_ASSIGN_OR_RETURN(run, FolderOwner::Acquire(ParentFolder(folder), me));
    }
    GACCD_ASSIGN_OR_RETURN(WriterLease lease, WriterLease::AcquireKeepingClaim(folder, me));
    return std::shared_ptr<const PruneLocks>(
        new PruneLocks{.run = std::move(run), .lease = std::move(lease)});
  }
  void Beat() const {
    if (run) run->Beat();
    lease.Beat();
  }
};

Result<CkptOutput> PruneFolder(const GenerationPlace& place, KeepPolicy keep) {
  if (place.one || keep.newest < 1 || keep.every < 0) {
    return Status(ErrorKind::kUsage,
                  "ckpt prune: expected a run folder, --keep >= 1 and --keep-every >= 0");
  }
  if (place.generations.empty()) {
    return Status(ErrorKind::kData, StrCat("'", place.folder, "' holds no checkpoint"));
  }
  const auto acquired = PruneLocks::Acquire(place.folder);
  if (!acquired.ok() && acquired.status().kind() == ErrorKind::kIo) {
    return Status(ErrorKind::kIo, StrCat(acquired.status().message(),
                                         "; on a full disk, free a few kB first: prune writes who "
                                         "holds the folder before it removes anything"));
  }
  GACCD_ASSIGN_OR_RETURN(const auto locks, acquired);
  // Removing may take longer than a lock stays valid without a sign of life.
  GACCD_ASSIGN_OR_RETURN(const auto beater,
                         WorkerThread::Start(
                             "the checkpoint thread", [locks] { locks->Beat(); }, kLeasePeriod));
  keep.best = true;
  // A generation that cannot be loaded must not count as kept.
  const auto intact = [&place](const Generation& one) {
    return VerifyGeneration(place.folder, one).ok();
  };
  GACCD_ASSIGN_OR_RETURN(const Pruned pruned,
                         Prune(place.folder, keep, locks->lease.epoch(), intact));
  CkptOutput output;
  for (const std::string& name : pruned.removed) output.text += StrCat("removed ", name, "\n");
  if (pruned.left > 0) {
    output.verdict = {ErrorKind::kIo,
                      StrCat(pruned.left, " of ", pruned.left + std::ssize(pruned.removed),
                             " checkpoints could not be removed: ", pruned.why)};
  } else if (pruned.removed.empty()) {
    output.text = "nothing to remove\n";
  }
  return output;
}

// As the state_dict of an exported network has them: tied parameters under all their names, which
// the network knows where its folder still is, and no constants.
std::vector<NamedTensor> StateDict(const SavedWeights& weights) {
  std::vector<NamedTensor> tensors;
  std::ranges::copy_if(weights.tensors, std::back_inserter(tensors),
                       [](const NamedTensor& tensor) { return !IsConstant(tensor.name); });
  const auto network = MakeNetwork(weights.job.model);
  if (!network.ok()) return tensors;
  for (const auto& [copy, name] : (*network)->weight_names().copies) {
    const auto found = std::ranges::find(weights.tensors, name, &NamedTensor::name);
    if (found != weights.tensors.end()) tensors.push_back({copy, found->shape, found->values});
  }
  return tensors;
}

// Writes the output file or folder; returns the end of the message for users.
Result<std::string> Write(const SavedWeights& weights, const CkptRequest& to) {
  if (to.transformers) {
    GACCD_ASSIGN_OR_RETURN(const std::string tokenizer,
                           WriteTransformersFolder(
                               to.out, weights.job, weights.tensors,
                               {.modes = to.out_modes, .without_tokenizer = to.without_tokenizer}));
    return "; " + tokenizer;
  }
  const std::vector<NamedTensor> tensors = StateDict(weights);
  GACCD_RETURN_IF_ERROR(WriteSafetensors(to.out, MakeViews(tensors), to.out_modes.file,
                                         DataMetadata(weights.job.data)));
  return std::string();
}

Result<CkptOutput> Export(const GenerationPlace& place, const CkptRequest& request) {
  const std::string& out = request.out;
  if (out.empty()) return Status(ErrorKind::kUsage, "ckpt export: expected --out=FILE");
  if (!request.transformers) GACCD_RETURN_IF_ERROR(CheckWeightsFile(out).WithContext("--out"));
  GACCD_ASSIGN_OR_RETURN(const SavedWeights weights, ReadSavedWeights(place, request.raw_weights));
  const auto more = Write(weights, request);
  if (!more.ok()) return Status(more.status()).WithContext("--out");
  CkptOutput output;
  std::string best;
  if (request.best) {
    GACCD_ASSIGN_OR_RETURN(const auto all, ListGenerations(place.folder));
    const auto newest = NewestReadable(place.folder, all);
    best = ", the best: " + BestText(newest ? *newest : weights.manifest);
  }
  for (const std::string& note : weights.skipped_checkpoints) output.text += note + "\n";
  output.text +=
      StrCat("wrote ", out,
             weights.averaged ? ": the averaged parameters after " : ": the parameters after ",
             Counted(weights.generation.step, "update"), " (", weights.generation.name(), ")", best,
             *more, "\n");
  if (const std::string better = OtherBestText(place, weights); !better.empty()) {
    output.text += better + "\n";
  }
  return output;
}

}  // namespace

Result<CkptRequest> MakeCkptRequest(std::span<const std::string> words, const std::string& out,
                                    const KeepPolicy& keep) {
  constexpr std::array<std::pair<std::string_view, CkptAction>, 4> kActions = {
      {{"ls", CkptAction::kLs},
       {"verify", CkptAction::kVerify},
       {"prune", CkptAction::kPrune},
       {"export", CkptAction::kExport}}};
  if (words.empty()) {
    return Status(ErrorKind::kUsage, "ckpt: expected ls, verify, prune or export, and a path");
  }
  std::vector<std::string_view> names;
  for (const auto& [name, action] : kActions) {
    names.push_back(name);
    if (words[0] != name) continue;
    if (words.size() == 2) return CkptRequest{action, words[1], out, keep};
    return Status(ErrorKind::kUsage,
                  StrCat("ckpt ", name, ": expected the path of a run folder or of a checkpoint"));
  }
  return Status(ErrorKind::kUsage, StrCat("ckpt: expected ls, verify, prune or export, found '",
                                          words[0], "'", Suggestion(words[0], names)));
}

Result<CkptOutput> RunCkptCommand(const CkptRequest& request) {
  if (request.path.empty()) {
    return Status(ErrorKind::kUsage, "ckpt: expected the path of a run folder or of a checkpoint");
  }
  GACCD_ASSIGN_OR_RETURN(GenerationPlace place, FindGenerations(request.path));
  if (request.best) {
    if (request.action == CkptAction::kLs || request.action == CkptAction::kPrune) {
      return Status(ErrorKind::kUsage, "--best applies only to ckpt export and ckpt verify");
    }
    GACCD_ASSIGN_OR_RETURN(place, OnlyBest(std::move(place)));
  }
  if (request.without_tokenizer && !request.transformers) {
    return Status(ErrorKind::kUsage, "--without-tokenizer needs --transformers");
  }
  if (request.raw_weights && request.action != CkptAction::kExport) {
    return Status(ErrorKind::kUsage, "--raw-weights applies only to ckpt export");
  }
  switch (request.action) {
    case CkptAction::kLs:
      return List(place, request.json);
    case CkptAction::kVerify:
      return Verify(place, request.json);
    case CkptAction::kPrune:
      return PruneFolder(place, request.keep);
    case CkptAction::kExport:
      return Export(place, request);
  }
  return Status(ErrorKind::kInternal, "ckpt: unknown action");
}

}  // namespace gaccd
