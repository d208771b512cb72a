// Loads a generation on any number of ranks.
//
// Rank r of W reads shards [S r / W, S (r + 1) / W) of S into its own memory and verifies every
// byte; the ranks together read each file once. The pieces are exchanged only after all ranks have
// verified theirs; the caller's model is not changed before that. Adjacent shards contain adjacent
// pieces of every sharded buffer, so a rank reads one contiguous range of it for any S and W.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/base/result.h"
#include "collectives/base/ticks.h"
#include "collectives/comm/communicator.h"
#include "daemon/checkpoint/generations.h"
#include "daemon/checkpoint/manifest.h"
#include "daemon/config/job.h"

namespace gaccd {

struct LoadedState {
  Generation generation;
  Manifest manifest;
  Job job;  // of the run that was saved
  // In the order of manifest.buffers. Sharded buffers are complete on every rank. A per-rank buffer
  // is this rank's if as many ranks load as saved, else empty: a partial update is then restarted.
  std::vector<std::vector<std::byte>> buffers;
};

// Called before memory is allocated. kData: reject this generation and try an older one; any other
// error ends the search, e.g. kConfig if the job has another model. Must return the same status on
// all ranks.
using AcceptManifest = std::function<Status(const Manifest& manifest, const Job& saved)>;

// Loads one generation. Collective; all ranks return the same status. kData or kIo: it is damaged,
// which includes a parameter that is not finite.
Result<LoadedState> LoadGeneration(Communicator& comm, const std::string& folder,
                                   const Generation& generation, const AcceptManifest& accept);

struct LoadOutcome {
  std::optional<LoadedState> state;  // none: there is no usable generation
  std::vector<std::string> refused;  // "step-...: why", newest first
  int damaged = 0;                   // how many of them had been committed
  std::string unreadable;            // the newest of these that could not be read; may be intact
};

// Loads the newest intact generation. Skips damaged ones, with the reason, and those of writer
// epochs before `since`, without a reason. Retries a failed read (kIo) once, because the next save
// supersedes a skipped generation. Collective. Rank 0 lists the folder.
Result<LoadOutcome> LoadNewest(Communicator& comm, const std::string& folder,
                               const AcceptManifest& accept, std::int64_t since = 0);

// Reads and verifies a whole generation in one process, with memory for one shard. May be called
// while a run writes other generations to the folder.
Status VerifyGeneration(const std::string& folder, const Generation& generation);

// Reads a sharded buffer of a generation from byte `first` to its end, in one process. Reads only
// its blocks and verifies their CRCs. Adds their bytes to `ticks`, which may be null.
Result<std::vector<std::byte>> ReadBuffer(const std::string& folder, const Generation& generation,
                                          const Manifest& manifest, std::string_view buffer,
                                          std::uint64_t first = 0, Ticks* ticks = nullptr);

}  // namespace gaccd
