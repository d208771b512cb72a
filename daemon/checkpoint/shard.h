// Shard: the file of one rank in a generation.
//
//   bytes 0..7    "GACCDSH1"
//   8..79         u64 each: version 1, block_bytes, rank, world, step, micro_step, writer epoch,
//                 payload bytes, digest of the list of buffers
//   80..83        u32 CRC32C of everything before
//   84..87        zero
//   then blocks   at most block_bytes of payload, then u32 CRC32C of them; only the last is shorter
// Little endian. The payload is this rank's part of every buffer (manifest.h), concatenated. Every
// byte of the file is either known in advance or covered by a CRC, and all of them by the SHA-256
// in the manifest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "collectives/base/result.h"
#include "collectives/base/ticks.h"
#include "daemon/checkpoint/manifest.h"

namespace gaccd {

// Identifies a shard: generation, rank, buffers.
struct ShardIdentity {
  std::int64_t rank = 0;
  std::int64_t world = 1;
  std::int64_t step = 0;
  std::int64_t micro_step = 0;
  std::int64_t writer_epoch = 1;
  std::uint64_t block_bytes = std::uint64_t{1} << 20;
  std::vector<BufferSpec> buffers;
};
[[nodiscard]] ShardIdentity MakeShardIdentity(const Manifest& manifest, std::int64_t rank);

// "shard-00017-of-00240.bin"
[[nodiscard]] std::string ShardName(std::int64_t rank, std::int64_t world);

// The file size, from the identity alone.
[[nodiscard]] std::uint64_t ShardBytes(const ShardIdentity& identity);

// parts[i] is this rank's part of buffer i. Writes like DurableFile, then reads the file again and
// compares, bypassing the page cache if possible. Never replaces a file. kIo, or kInternal for
// parts of wrong size; on any error no new file is left.
Result<ShardRecord> WriteShard(const std::string& path, const ShardIdentity& identity,
                               std::span<const std::span<const std::byte>> parts, unsigned mode);

// Fills `out` with the bytes from `offset` on.
using ReadAt = std::function<Status(std::uint64_t offset, std::span<std::byte> out)>;

// Reads a shard once and checks all of it: size, header, CRCs, SHA-256 (unless `record` is null).
// parts: memory for each buffer's part, of its exact size; empty: only checks. Undefined after an
// error. kData with the byte offset of the damage.
Status ReadShard(const ReadAt& read_at, std::uint64_t file_bytes, const ShardIdentity& identity,
                 const ShardRecord* record, std::span<const std::span<std::byte>> parts);
// The same for a file, with its name in the message. `ticks`, which may be null, counts its bytes.
Status ReadShardFile(const std::string& path, const ShardIdentity& identity,
                     const ShardRecord* record, std::span<const std::span<std::byte>> parts,
                     Ticks* ticks = nullptr);

// Fills `out` from byte `first` of the payload on, and checks size, header and the CRCs of the
// blocks that this touches; nothing else is read. REQUIRES: the range is in the payload. Errors,
// ticks: as ReadShardFile().
Status ReadShardPart(const std::string& path, const ShardIdentity& identity, std::uint64_t first,
                     std::span<std::byte> out, Ticks* ticks = nullptr);

}  // namespace gaccd
