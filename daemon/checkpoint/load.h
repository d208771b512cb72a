// Loading a generation, on any number of ranks.
//
// Rank r of W reads the shards [S r / W, S (r + 1) / W) of the S that were written, whole, into
// memory of its own, and checks every byte; so together the ranks read every file once. Only when
// all of them found all well, the pieces are exchanged. Nothing of the caller's model is touched
// before that. Neighbouring shards hold neighbouring pieces of every sharded buffer, so a rank's
// pieces are one range of it, whatever S and W are.
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
  // As manifest.buffers. Sharded ones are whole, on every rank. A per-rank buffer is this rank's
  // when as many ranks load as have saved, else empty: a window then starts again from its update.
  std::vector<std::vector<std::byte>> buffers;
};

// Looked at before memory is taken. kData: this generation is no good, take an older one; any other
// error ends the search, e.g. kConfig when the job has another model. Must give the same answer on
// all ranks.
using AcceptManifest = std::function<Status(const Manifest& manifest, const Job& saved)>;

// One generation. Collective; all ranks get the same status. kData or kIo: it is damaged; a
// parameter that is not finite is damage, too.
Result<LoadedState> LoadGeneration(Communicator& comm, const std::string& folder,
                                   const Generation& generation, const AcceptManifest& accept);

struct LoadOutcome {
  std::optional<LoadedState> state;  // none: there is no usable generation
  std::vector<std::string> refused;  // "step-...: why", newest first
  int damaged = 0;                   // of those, how many had once been finished
};

// The newest generation that is whole; damaged ones are passed over, with the reason, and those of
// writer epochs before `since` without. What cannot be read (kIo) is tried a second time: the next
// save will supersede what is passed over. Collective. Rank 0 lists the folder.
Result<LoadOutcome> LoadNewest(Communicator& comm, const std::string& folder,
                               const AcceptManifest& accept, std::int64_t since = 0);

// Reads and checks all of a generation on one process, with the memory of one shard. Also for use
// while a run writes elsewhere in the folder.
Status VerifyGeneration(const std::string& folder, const Generation& generation);

// One sharded buffer of a generation, from byte `first` on, on one process. Only its blocks are
// read and verified, by their CRCs. `ticks`, which may be null, gets their bytes.
Result<std::vector<std::byte>> ReadBuffer(const std::string& folder, const Generation& generation,
                                          const Manifest& manifest, std::string_view buffer,
                                          std::uint64_t first = 0, Ticks* ticks = nullptr);

}  // namespace gaccd
