// What the helper thread does for one generation, on one rank: no communicator, no waiting for
// others.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "collectives/base/result.h"
#include "daemon/checkpoint/generations.h"
#include "daemon/checkpoint/lease.h"
#include "daemon/checkpoint/manifest.h"
#include "daemon/checkpoint/shard.h"

namespace gaccd {

struct SaveModes {
  unsigned folder = 0700;
  unsigned file = 0600;
};

// This rank's shard, in the generation's folder, which is made if it is not there.
Result<ShardRecord> WriteShardOf(const std::string& folder, const Generation& generation,
                                 const ShardIdentity& identity,
                                 std::span<const std::span<const std::byte>> parts,
                                 SaveModes modes);

// Rank 0, after every shard is on the disk: makes the generation exist. The lease is asked last,
// between the manifest's bytes and its name.
Status CommitManifest(const std::string& folder, const Manifest& manifest, const WriterLease& lease,
                      SaveModes modes);

// Takes back what this rank wrote of a generation that failed. Best effort: the next prune takes
// the rest.
void Discard(const std::string& folder, const Generation& generation, std::int64_t rank,
             std::int64_t world);

}  // namespace gaccd
