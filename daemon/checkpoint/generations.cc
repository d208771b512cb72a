#include "daemon/checkpoint/generations.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <map>
#include <utility>

#include "collectives/base/files.h"
#include "collectives/base/strings.h"
#include "daemon/checkpoint/lease.h"
#include "daemon/checkpoint/shard.h"

namespace gaccd {
namespace {

// Parses "<prefix><digits>" from the front of `text`: at least `width` digits, at most those of a
// 63-bit number.
std::optional<std::int64_t> ParseNumberPrefix(std::string_view prefix, std::size_t width,
                                              std::string_view* text) {
  if (!text->starts_with(prefix)) return std::nullopt;
  text->remove_prefix(prefix.size());
  const std::size_t digits = std::min(text->find_first_not_of("0123456789"), text->size());
  if (digits < width || (digits > width && text->front() == '0')) return std::nullopt;
  std::int64_t number = 0;
  const auto end = text->data() + digits;
  if (std::from_chars(text->data(), end, number).ec != std::errc()) return std::nullopt;
  text->remove_prefix(digits);
  return number;
}

// The type of an entry (S_IFDIR, ...), without following links; 0: it does not exist.
Result<mode_t> EntryType(const std::string& path) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) == 0) return info.st_mode & S_IFMT;
  if (errno == ENOENT || errno == ENOTDIR) return mode_t{0};
  return ErrnoStatus("cannot read", path);
}

Status NoFolder(const std::string& path) {
  return {ErrorKind::kIo,
          StrCat("'", path, "' ", PathExists(path) ? "is not a folder" : "does not exist")};
}

// Updates before the best evaluation according to the newest readable manifest; 0: none.
std::int64_t BestStep(const std::string& folder, const std::vector<Generation>& all) {
  const auto newest = NewestReadable(folder, all);
  return newest ? newest->cursor.best.step : 0;
}

// Removes those of an earlier training and, once the newest start that went back has saved, those
// that it gave up: they may have the same updates with other weights. all: newest first.
std::vector<Generation> Continued(const std::vector<Generation>& all,
                                  const TrainingStart& training) {
  std::vector<Generation> left = Since(all, training.since);
  if (left.empty()) left = all;
  const auto back_to = ParseGenerationName(training.back_to);
  if (!back_to || left.empty() || left.front().epoch < training.back_since) return left;
  std::erase_if(left, [&](const Generation& one) {
    return one.epoch < training.back_since &&
           std::pair(one.epoch, one.step) > std::pair(back_to->epoch, back_to->step);
  });
  return left;
}

// Whether `one`, of the best update of `newest`, was saved after another evaluation than that best
// one, and so belongs to a line that was given up. An evaluation by another metric, or over other
// data, shows nothing.
bool WasEvaluatedOtherwise(const std::string& folder, const Generation& one,
                           const Manifest& newest) {
  const auto found = ReadManifest(folder, one);
  if (!found.ok() || found->cursor.best.evaluated < one.step) return false;
  const BestSoFar& was = found->cursor.best;
  if (was.step == one.step && was.value == newest.cursor.best.value) return false;
  if (found->cursor.content.eval != newest.cursor.content.eval) return false;
  const auto job = SavedJob(*found);
  const auto newest_job = SavedJob(newest);
  return job.ok() && newest_job.ok() && job->evaluation.metric == newest_job->evaluation.metric;
}

Status Unlink(int folder, const std::string& path, const std::string& name) {
  if (::unlinkat(folder, name.c_str(), 0) == 0 || errno == ENOENT) return Status::Ok();
  return ErrnoStatus("cannot remove", StrCat(path, "/", name));
}

}  // namespace

std::string Generation::name() const {
  const std::string micro = micro_step > 0 ? Format("-micro-%06ld", micro_step) : "";
  return StrCat(Format("step-%012ld", step), micro, Format("-e%06ld", epoch));
}

std::optional<Generation> ParseGenerationName(std::string_view name) {
  Generation generation;
  const auto step = ParseNumberPrefix("step-", 12, &name);
  if (!step) return std::nullopt;
  generation.step = *step;
  if (name.starts_with("-micro-")) {
    const auto micro = ParseNumberPrefix("-micro-", 6, &name);
    if (!micro || *micro == 0) return std::nullopt;
    generation.micro_step = *micro;
  }
  const auto epoch = ParseNumberPrefix("-e", 6, &name);
  if (!epoch || *epoch < 1 || !name.empty()) return std::nullopt;
  generation.epoch = *epoch;
  return generation;
}

Result<std::vector<Generation>> ListGenerations(const std::string& folder) {
  GACCD_ASSIGN_OR_RETURN(const mode_t there, EntryType(folder));
  if (there == 0) return std::vector<Generation>();
  GACCD_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListFolder(folder, kMaxEntries));
  std::vector<Generation> all;
  for (const std::string& name : names) {
    std::optional<Generation> generation = ParseGenerationName(name);
    const std::string path = StrCat(folder, "/", name);
    if (!generation) continue;
    GACCD_ASSIGN_OR_RETURN(const mode_t kind, EntryType(path));
    if (kind != S_IFDIR) continue;
    // An unreadable one must not count as unfinished, as older ones would then replace it.
    GACCD_ASSIGN_OR_RETURN(const mode_t manifest, EntryType(StrCat(path, "/", kManifestName)));
    generation->committed = manifest != 0;
    all.push_back(*generation);
  }
  std::sort(all.begin(), all.end(), std::greater<>());
  return all;
}

Result<GenerationPlace> FindGenerations(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  GenerationPlace place;
  const std::string name = path.substr(path.rfind('/') + 1);
  if (auto generation = ParseGenerationName(name)) {
    if (!IsFolder(path)) return NoFolder(path);
    generation->committed = PathExists(StrCat(path, "/", kManifestName));
    return GenerationPlace{ParentFolder(path), {*generation}, true};
  }
  place.folder = IsFolder(path + "/ckpt") ? path + "/ckpt" : path;
  if (!IsFolder(place.folder)) return NoFolder(path);
  GACCD_ASSIGN_OR_RETURN(place.generations, ListGenerations(place.folder));
  return place;
}

Result<std::string> ReadManifestFile(const std::string& path) {
  GACCD_RETURN_IF_ERROR(OpenOwnFolder(path).status());
  GACCD_ASSIGN_OR_RETURN(const InputFile file,
                         InputFile::Open(StrCat(path, "/", kManifestName), Links::kRefuse));
  if (file.size() > kMaxManifestBytes) {
    return Status(ErrorKind::kData, StrCat(file.path(), ": expected at most ", kMaxManifestBytes,
                                           " bytes, found ", file.size()));
  }
  std::string text(file.size(), '\0');
  GACCD_RETURN_IF_ERROR(file.ReadAt(0, std::as_writable_bytes(std::span(text))));
  return text;
}

Status CheckManifestName(const Generation& generation, const Manifest& manifest) {
  const Generation found{manifest.writer_epoch, manifest.cursor.step, manifest.cursor.micro_step,
                         generation.committed};
  if (found == generation) return Status::Ok();
  return {ErrorKind::kData, StrCat(generation.name(), ": its manifest belongs to ", found.name())};
}

Result<Manifest> ReadManifest(const std::string& folder, const Generation& generation) {
  const std::string path = generation.PathIn(folder);
  GACCD_ASSIGN_OR_RETURN(const std::string text, ReadManifestFile(path));
  GACCD_ASSIGN_OR_RETURN(Manifest manifest, DecodeManifest(StrCat(path, "/", kManifestName), text));
  GACCD_RETURN_IF_ERROR(CheckManifestName(generation, manifest));
  return manifest;
}

std::optional<Manifest> NewestReadable(const std::string& folder,
                                       const std::vector<Generation>& all) {
  for (const Generation& one : all) {
    auto manifest = ReadManifest(folder, one);
    if (manifest.ok()) return *std::move(manifest);
  }
  return std::nullopt;
}

Status CheckComplete(const std::string& folder, const Generation& generation) {
  GACCD_ASSIGN_OR_RETURN(const Manifest manifest, ReadManifest(folder, generation));
  GACCD_RETURN_IF_ERROR(CheckedJob(manifest).status().WithContext(generation.name()));
  for (std::int64_t rank = 0; rank < manifest.world(); ++rank) {
    const std::string path =
        StrCat(generation.PathIn(folder), "/", ShardName(rank, manifest.world()));
    struct stat info {};
    if (::lstat(path.c_str(), &info) != 0) return ErrnoStatus("cannot read", path);
    const std::uint64_t expected = manifest.shards[static_cast<std::size_t>(rank)].bytes;
    if (!S_ISREG(info.st_mode) || static_cast<std::uint64_t>(info.st_size) != expected) {
      return {ErrorKind::kData,
              StrCat(path, ": expected a file of ", expected, " bytes, found ", info.st_size)};
    }
  }
  return Status::Ok();
}

std::vector<Generation> Since(std::vector<Generation> all, std::int64_t since) {
  std::erase_if(all, [&](const Generation& one) { return one.epoch < since; });
  return all;
}

std::optional<Generation> FindBest(const std::string& folder,
                                   const std::vector<Generation>& generations) {
  const std::vector<Generation> all = Continued(generations, NewestTraining(folder));
  const auto newest = NewestReadable(folder, all);
  if (!newest || newest->cursor.best.step == 0) return std::nullopt;
  const auto best = std::ranges::find_if(all, [&](const Generation& one) {
    return one.committed && one.step == newest->cursor.best.step && one.micro_step == 0 &&
           !WasEvaluatedOtherwise(folder, one, *newest) && CheckComplete(folder, one).ok();
  });
  return best != all.end() ? std::optional(*best) : std::nullopt;
}

bool HasBest(const std::string& folder, std::int64_t step) {
  const auto all = ListGenerations(folder);
  if (!all.ok()) return false;
  const std::optional<Generation> best = FindBest(folder, *all);
  return best && best->step == step;
}

Result<GenerationPlace> OnlyBest(GenerationPlace place) {
  if (place.one) {
    return Status(ErrorKind::kUsage, "--best: expected a run folder, found a checkpoint");
  }
  const auto best = FindBest(place.folder, place.generations);
  if (best) return GenerationPlace{std::move(place.folder), {*best}, true};
  const std::int64_t step = BestStep(place.folder, place.generations);
  if (step == 0) {
    return Status(ErrorKind::kData,
                  StrCat("--best: '", place.folder, "' has no evaluation with a finite value"));
  }
  return Status(ErrorKind::kData,
                StrCat("--best: '", place.folder, "' holds no checkpoint of update ", step,
                       ", after which the evaluation was the best: evaluation.keep_best keeps it, "
                       "unless its save failed or another run folder has it"));
}

std::vector<Generation> ToRemove(const std::vector<Generation>& all,
                                 const std::vector<bool>& complete, const KeepPolicy& policy,
                                 std::int64_t epoch, const std::optional<Generation>& best) {
  // The oldest complete generation of each `every` updates. The first of equal ones belongs to the
  // line that continued.
  std::map<std::int64_t, Generation> milestones;
  for (std::size_t i = 0; policy.every > 0 && i < all.size(); ++i) {
    if (!complete[i] || all[i].step < policy.every) continue;
    const auto [place, added] = milestones.try_emplace(all[i].step / policy.every, all[i]);
    if (!added && all[i].step < place->second.step) place->second = all[i];
  }
  std::vector<Generation> remove;
  std::int64_t kept = 0;
  bool committed_of_epoch = false;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Generation& one = all[i];
    if (one.epoch > epoch) continue;
    if (!one.committed) {
      if (one.epoch != epoch || committed_of_epoch) remove.push_back(one);
      continue;
    }
    committed_of_epoch |= one.epoch == epoch;
    const bool newest = complete[i] && kept < policy.newest;
    if (complete[i]) ++kept;
    if (newest || one == best) continue;
    const auto milestone =
        policy.every > 0 ? milestones.find(one.step / policy.every) : milestones.end();
    if (milestone != milestones.end() && milestone->second == one) continue;
    // While nothing intact is newer, a damaged one is evidence, not garbage.
    if (kept >= policy.newest) remove.push_back(one);
  }
  return remove;
}

bool IsCommitted(const std::string& folder, const Generation& generation) {
  return PathExists(StrCat(generation.PathIn(folder), "/", kManifestName));
}

Status RemoveGeneration(const std::string& folder, const Generation& generation) {
  const std::string path = generation.PathIn(folder);
  // Held open, so that a link that replaces it cannot lead to other files.
  GACCD_ASSIGN_OR_RETURN(const FileDescriptor open, OpenOwnFolder(path));
  GACCD_RETURN_IF_ERROR(Unlink(open.get(), path, std::string(kManifestName)));
  if (::fsync(open.get()) != 0) return ErrnoStatus("cannot make folder durable", path);
  GACCD_ASSIGN_OR_RETURN(const auto names, ListFolder(open.get(), path, kMaxEntries));
  for (const std::string& name : names) GACCD_RETURN_IF_ERROR(Unlink(open.get(), path, name));
  if (::rmdir(path.c_str()) != 0) return ErrnoStatus("cannot remove folder", path);
  return Status::Ok();
}

namespace {

// The best one to keep: see KeepPolicy.
std::optional<Generation> FindBestToKeep(const std::string& folder,
                                         const std::vector<Generation>& all) {
  auto best = FindBest(folder, all);
  if (best) return best;
  const auto newest = NewestReadable(folder, all);
  const auto job = newest ? SavedJob(*newest) : Result<Job>(Status(ErrorKind::kData, "none"));
  if (!job.ok() || !job->evaluation.keep_best) return std::nullopt;
  const auto was_best = std::ranges::find_if(all, [&](const Generation& one) {
    const auto manifest = ReadManifest(folder, one);
    return one.micro_step == 0 && manifest.ok() && manifest->cursor.best.step == one.step &&
           CheckComplete(folder, one).ok();
  });
  return was_best == all.end() ? std::nullopt : std::optional(*was_best);
}

}  // namespace

Result<Pruned> Prune(const std::string& folder, const KeepPolicy& policy, std::int64_t epoch,
                     const std::function<bool(const Generation&)>& intact, std::int64_t since) {
  GACCD_ASSIGN_OR_RETURN(const std::vector<Generation> listed, ListGenerations(folder));
  std::vector<Generation> all;
  std::vector<bool> complete;
  std::int64_t good = 0;
  for (const Generation& one : listed) {
    if (one.committed && one.epoch < since) continue;
    const Status status = one.committed ? CheckComplete(folder, one) : Status::Ok();
    if (!status.ok() && status.kind() == ErrorKind::kConfig) continue;  // of another version
    all.push_back(one);
    complete.push_back(one.committed && status.ok() &&
                       (!intact || good >= policy.newest || intact(one)));
    if (complete.back()) ++good;
  }
  Pruned pruned;
  const auto best = policy.best ? FindBestToKeep(folder, all) : std::nullopt;
  for (const Generation& one : ToRemove(all, complete, policy, epoch, best)) {
    const Status status = RemoveGeneration(folder, one);
    if (status.ok()) {
      pruned.removed.push_back(one.name());
    } else {
      pruned.why += StrCat(pruned.left++ > 0 ? "; " : "", one.name(), ": ", status.message());
    }
  }
  return pruned;
}

}  // namespace gaccd
