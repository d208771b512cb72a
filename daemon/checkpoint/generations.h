// Generations: the folders of a checkpoint folder: names, order, retention.
//
//   <folder>/step-000000001234-e000007/                after update 1234, by writer epoch 7
//   <folder>/step-000000001234-micro-000003-e000007/   inside update 1235, after 3 micro-steps
//     shard-00000-of-00002.bin shard-00001-of-00002.bin MANIFEST
//   <folder>/LATEST                                    a hint for users; never read
//   <folder>/.owner .epoch-000007                      lease.h
//
// Every start of a run has a higher epoch, so a name is never reused. If a run continued from an
// old generation, the epoch shows which line is current: newest means highest epoch, then step,
// then micro-step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/base/result.h"
#include "daemon/checkpoint/manifest.h"

namespace gaccd {

inline constexpr std::size_t kMaxEntries = 100'000;  // in a checkpoint folder

struct Generation {
  std::int64_t epoch = 0;
  std::int64_t step = 0;
  std::int64_t micro_step = 0;
  bool committed = false;  // it has a manifest

  [[nodiscard]] std::string name() const;
  [[nodiscard]] std::string PathIn(const std::string& folder) const {
    return folder + "/" + name();
  }
  friend auto operator<=>(const Generation&, const Generation&) = default;
};

// Empty if the name is not that of a generation. `committed` stays false.
[[nodiscard]] std::optional<Generation> ParseGenerationName(std::string_view name);

// Newest first. Other entries of the folder are ignored. kIo if it cannot be read; a folder that
// does not exist has none. A MANIFEST that is not a file counts as a damaged manifest.
Result<std::vector<Generation>> ListGenerations(const std::string& folder);

// The generations that a path refers to: a run folder, its ckpt folder, or one generation's folder.
struct GenerationPlace {
  std::string folder;
  std::vector<Generation> generations;  // newest first
  bool one = false;                     // the path is that of one generation
};
// kIo if it is not a folder.
Result<GenerationPlace> FindGenerations(std::string path);

// The place with FindBest() only. kUsage if the path is that of one generation; kData, with the
// update, if there is none.
Result<GenerationPlace> OnlyBest(GenerationPlace place);

// The content of the manifest of the generation `path`. kIo, also if the folder belongs to another
// user, or kData.
Result<std::string> ReadManifestFile(const std::string& path);
// The same, decoded, after checking that the name matches the content.
Result<Manifest> ReadManifest(const std::string& folder, const Generation& generation);
[[nodiscard]] Status CheckManifestName(const Generation& generation, const Manifest& manifest);

// The manifest of the newest generation that has a readable one.
[[nodiscard]] std::optional<Manifest> NewestReadable(const std::string& folder,
                                                     const std::vector<Generation>& all);

// A cheap check: the manifest is valid, as in CheckedJob(), and every shard exists with its size.
// Contents are not read.
[[nodiscard]] Status CheckComplete(const std::string& folder, const Generation& generation);

// The generation with the best evaluation according to the newest readable manifest. Empty: no
// evaluation, or that generation is missing or incomplete. Ignores generations of a training before
// the newest one (lease.h) if the newest one has any, and those of a line that was given up when a
// start went back (--resume=PATH). all: newest first.
[[nodiscard]] std::optional<Generation> FindBest(const std::string& folder,
                                                 const std::vector<Generation>& all);
// Whether FindBest() of the folder was saved after update `step`.
[[nodiscard]] bool HasBest(const std::string& folder, std::int64_t step);

struct KeepPolicy {
  std::int64_t newest = 3;  // >= 1
  // > 0: also keeps the oldest of each `every` updates: one from [every, 2 every), one from [2
  // every, 3 every), ...; of equal updates the one with the highest epoch.
  std::int64_t every = 0;
  // Also keeps FindBest(); with evaluation.keep_best, if that is missing because its save failed,
  // the newest one that was the best when it was saved.
  bool best = false;
};

// The generations to remove, newest first. complete: result of CheckComplete() for each; an
// incomplete one does not count as kept. An uncommitted one is removed if no process can be writing
// it: its epoch is not `epoch`, or it is older than a committed one of `epoch`. Generations of a
// higher epoch belong to another writer and are kept, as is `best`. REQUIRES: all is newest first,
// equal sizes.
[[nodiscard]] std::vector<Generation> ToRemove(const std::vector<Generation>& all,
                                               const std::vector<bool>& complete,
                                               const KeepPolicy& policy, std::int64_t epoch,
                                               const std::optional<Generation>& best = {});

// Whether it still has a manifest: a run may remove it while it is read.
[[nodiscard]] bool IsCommitted(const std::string& folder, const Generation& generation);

// Removes the manifest first, so that a partly removed generation does not exist.
Status RemoveGeneration(const std::string& folder, const Generation& generation);

// The generations of epochs from `since` on.
[[nodiscard]] std::vector<Generation> Since(std::vector<Generation> all, std::int64_t since);

struct Pruned {
  std::vector<std::string> removed;  // names
  int left = 0;                      // number that could not be removed
  std::string why;                   // "step-...: reason; step-...: reason"
};
// Removes ToRemove() as far as possible. intact, if set: a stricter check of the newest ones to be
// kept; one that fails does not count as kept. Generations committed before epoch `since` belong to
// another training, others to another version of gaccd: they neither count nor are removed. Error:
// the folder cannot be read.
Result<Pruned> Prune(const std::string& folder, const KeepPolicy& policy, std::int64_t epoch,
                     const std::function<bool(const Generation&)>& intact = {},
                     std::int64_t since = 0);

}  // namespace gaccd
