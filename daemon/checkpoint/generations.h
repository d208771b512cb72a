// Generations: the folders of a checkpoint folder, their names, their order, which are kept.
//
//   <folder>/step-000000001234-e000007/                after update 1234, by writer epoch 7
//   <folder>/step-000000001234-micro-000003-e000007/   inside update 1235, after 3 micro-steps
//     shard-00000-of-00002.bin shard-00001-of-00002.bin MANIFEST
//   <folder>/LATEST                                    a hint for people; never read
//   <folder>/.owner .epoch-000007                      lease.h
//
// Every start of a run has a higher epoch, so a name is never used twice, and a run that was sent
// back to an old generation leaves no doubt which line is the current one: newest means highest
// epoch, then step, then micro-step.
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

inline constexpr std::size_t kMaxEntries = 100'000;  // of a checkpoint folder

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

// Empty for names that are not of a generation. `committed` stays false.
[[nodiscard]] std::optional<Generation> ParseGenerationName(std::string_view name);

// Newest first. Whatever else lies in the folder is left out. kIo when it cannot be read; a folder
// that does not exist holds none. What is called MANIFEST and is no file is a damaged manifest.
Result<std::vector<Generation>> ListGenerations(const std::string& folder);

// What a path of checkpoints means: a run folder, its ckpt folder, or one generation's folder.
struct GenerationPlace {
  std::string folder;
  std::vector<Generation> generations;  // newest first
  bool one = false;                     // the path named it
};
// kIo for what is no folder.
Result<GenerationPlace> FindGenerations(std::string path);

// The place with FindBest() alone. kUsage when the path named one; kData, with the update, when
// there is none.
Result<GenerationPlace> OnlyBest(GenerationPlace place);

// The manifest of the generation `path`. kIo, also when the folder is another user's, or kData.
Result<std::string> ReadManifestFile(const std::string& path);
// The same, decoded, with a name that fits what it says.
Result<Manifest> ReadManifest(const std::string& folder, const Generation& generation);
[[nodiscard]] Status CheckManifestName(const Generation& generation, const Manifest& manifest);

// Cheap: the manifest is right, as CheckedJob() has it, and every shard is there with its
// size. Contents are not read.
[[nodiscard]] Status CheckComplete(const std::string& folder, const Generation& generation);

// The one of the best evaluation, as the newest that has a readable manifest tells. Empty: there
// was no evaluation, or that checkpoint is not there or not complete. Those of a training before
// the newest one (lease.h) are not looked at while that one has any. `all`: newest first.
[[nodiscard]] std::optional<Generation> FindBest(const std::string& folder,
                                                 const std::vector<Generation>& all);

struct KeepPolicy {
  std::int64_t newest = 3;  // >= 1
  // > 0: also the oldest of each `every` updates: one from [every, 2 every), one from
  // [2 every, 3 every), ...; of those after equal updates the one of the highest epoch.
  std::int64_t every = 0;
  bool best = false;  // also FindBest()
};

// Which to remove, newest first. `complete` says of each whether CheckComplete() was fine; a
// generation that is not counts for nothing. What is not committed is removed when nobody can be
// writing it: another epoch than `epoch`, or older than a committed one of `epoch`. Generations of
// a higher epoch belong to another writer and stay, as does `best`. REQUIRES: all newest first,
// equal sizes.
[[nodiscard]] std::vector<Generation> ToRemove(const std::vector<Generation>& all,
                                               const std::vector<bool>& complete,
                                               const KeepPolicy& policy, std::int64_t epoch,
                                               const std::optional<Generation>& best = {});

// The manifest first, so that a half-removed generation is none.
Status RemoveGeneration(const std::string& folder, const Generation& generation);

// Those of the epochs from `since` on.
[[nodiscard]] std::vector<Generation> Since(std::vector<Generation> all, std::int64_t since);

struct Pruned {
  std::vector<std::string> removed;  // names
  int left = 0;                      // so many could not be removed,
  std::string why;                   // "step-...: why; step-...: why"
};
// ToRemove() carried out, as far as it can be. `intact`, when given, is a stricter check of the
// newest ones that are to stay: one that fails it counts for nothing. What was committed before
// epoch `since` belongs to another training: it neither counts nor is removed. An error: the folder
// cannot be read.
Result<Pruned> Prune(const std::string& folder, const KeepPolicy& policy, std::int64_t epoch,
                     const std::function<bool(const Generation&)>& intact = {},
                     std::int64_t since = 0);

}  // namespace gaccd
