#include "daemon/checkpoint/load.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <utility>

#include "collectives/base/files.h"
#include "collectives/base/memory.h"
#include "collectives/base/strings.h"
#include "collectives/bootstrap/agree.h"
#include "daemon/checkpoint/shard.h"

namespace gaccd {
namespace {

struct ShardRange {
  std::int64_t first = 0;
  std::int64_t end = 0;
};

ShardRange AssignShards(std::int64_t shards, std::int64_t rank, std::int64_t world) {
  return {shards * rank / world, shards * (rank + 1) / world};
}

// The range of a sharded buffer that the shards [first, end) hold.
ByteRange ShardByteRange(const BufferSpec& buffer, ShardRange range, std::int64_t shards) {
  if (range.first == range.end) return {0, 0};
  const std::uint64_t from = PartRange(buffer, range.first, shards).offset;
  const ByteRange last = PartRange(buffer, range.end - 1, shards);
  return {from, last.offset + last.bytes - from};
}

// kData unless the file has the size in the manifest: called before memory is allocated for it.
Status CheckSize(const std::string& path, std::uint64_t expected) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) {
    if (errno != ENOENT) return ErrnoStatus("cannot read", path);
    return {ErrorKind::kData, StrCat(path, ": missing")};
  }
  if (static_cast<std::uint64_t>(info.st_size) == expected) return Status::Ok();
  return {ErrorKind::kData, StrCat(path, ": expected ", expected, " bytes, found ", info.st_size)};
}

// Which buffers ReadShare() returns: mine[b] is the share's range of buffer b, or the whole of a
// per-rank buffer. The others are only verified.
using Wanted = std::function<bool(const BufferSpec&)>;

Status ReadShare(const std::string& path, const Manifest& manifest, ShardRange share,
                 const Wanted& wanted, Ticks* ticks, std::vector<std::vector<std::byte>>* mine) {
  const std::int64_t shards = manifest.world();
  const std::vector<BufferSpec>& buffers = manifest.buffers;
  // All sizes are checked before memory is allocated.
  for (std::int64_t i = share.first; i < share.end; ++i) {
    GACCD_RETURN_IF_ERROR(CheckSize(StrCat(path, "/", ShardName(i, shards)),
                                    ShardBytes(MakeShardIdentity(manifest, i))));
  }
  mine->resize(buffers.size());
  std::vector<std::vector<std::byte>> unused(buffers.size());
  for (std::size_t b = 0; b < buffers.size() && share.first < share.end; ++b) {
    if (!wanted(buffers[b])) continue;
    (*mine)[b].resize(buffers[b].per_rank ? buffers[b].bytes
                                          : ShardByteRange(buffers[b], share, shards).bytes);
  }
  for (std::int64_t i = share.first; i < share.end; ++i) {
    std::vector<std::span<std::byte>> parts;
    for (std::size_t b = 0; b < buffers.size(); ++b) {
      const ByteRange part = PartRange(buffers[b], i, shards);
      if (!wanted(buffers[b])) {
        unused[b].resize(part.bytes);
        parts.emplace_back(unused[b]);
        continue;
      }
      const std::uint64_t from =
          buffers[b].per_rank ? 0 : ShardByteRange(buffers[b], share, shards).offset;
      parts.push_back(std::span((*mine)[b]).subspan(part.offset - from, part.bytes));
    }
    const ShardRecord& record = manifest.shards[static_cast<std::size_t>(i)];
    GACCD_RETURN_IF_ERROR(ReadShardFile(StrCat(path, "/", ShardName(i, shards)),
                                        MakeShardIdentity(manifest, i), &record, parts, ticks));
  }
  return Status::Ok();
}

// Library exceptions end here: a generation too large for this machine is an error like others.
Status ReadShareSafely(const std::string& path, const Manifest& manifest, ShardRange share,
                       const Wanted& wanted, Ticks* ticks,
                       std::vector<std::vector<std::byte>>* mine) {
  try {
    return ReadShare(path, manifest, share, wanted, ticks, mine);
  } catch (const std::bad_alloc&) {
    std::uint64_t bytes = 0;
    for (const BufferSpec& buffer : manifest.buffers) {
      if (wanted(buffer)) bytes += ShardByteRange(buffer, share, std::ssize(manifest.shards)).bytes;
    }
    return NoMemory(StrCat("this rank's part of '", path, "'"), bytes);
  }
}

Result<std::vector<std::byte>> Exchange(Communicator& comm, const BufferSpec& buffer,
                                        std::int64_t shards, std::vector<std::byte> mine) {
  if (comm.size() == 1) return mine;
  std::vector<std::int64_t> counts;
  for (int rank = 0; rank < comm.size(); ++rank) {
    const ShardRange share = AssignShards(shards, rank, comm.size());
    counts.push_back(static_cast<std::int64_t>(ShardByteRange(buffer, share, shards).bytes));
  }
  std::vector<std::byte> all(buffer.bytes);
  GACCD_RETURN_IF_ERROR(comm.AllGather({mine.data(), mine.size(), DType::kU8}, counts,
                                       {all.data(), all.size(), DType::kU8}));
  return all;
}

std::string NamesText(const std::vector<Generation>& all) {
  std::string text;
  for (const Generation& one : all) text += StrCat(one.committed ? "+" : "-", one.name(), "\n");
  return text;
}

std::vector<Generation> ParseNames(std::string_view text) {
  std::vector<Generation> all;
  for (const std::string& line : Split(text, '\n')) {
    if (auto one = ParseGenerationName(line.substr(1))) {
      one->committed = line.front() == '+';
      all.push_back(*one);
    }
  }
  return all;
}

// Calls load(), and once more after kIo.
template <typename Load>
auto TwiceIfUnreadable(const Load& load) {
  auto loaded = load();
  const bool again = !loaded.ok() && loaded.status().kind() == ErrorKind::kIo;
  return again ? load() : std::move(loaded);
}

bool IsDamage(const Status& status) {
  return status.kind() == ErrorKind::kData || status.kind() == ErrorKind::kIo;
}

}  // namespace

Result<LoadedState> LoadGeneration(Communicator& comm, const std::string& folder,
                                   const Generation& generation, const AcceptManifest& accept) {
  const std::string path = generation.PathIn(folder);
  Result<std::string> text = Status(ErrorKind::kInternal, "rank 0 reads the manifest");
  if (comm.rank() == 0) text = ReadManifestFile(path);
  GACCD_ASSIGN_OR_RETURN(text, ShareFromRank(comm, 0, text));
  GACCD_ASSIGN_OR_RETURN(Manifest manifest, DecodeManifest(path, *text));
  GACCD_RETURN_IF_ERROR(CheckManifestName(generation, manifest));
  auto job = CheckedJob(manifest);
  if (!job.ok()) return job.status().WithContext(path);
  GACCD_RETURN_IF_ERROR(accept(manifest, *job));

  const std::int64_t shards = manifest.world();
  const ShardRange share = AssignShards(shards, comm.rank(), comm.size());
  std::vector<std::vector<std::byte>> mine;
  // With as many ranks as shards, this rank reads the shard it wrote, with its partial update.
  const Wanted wanted = [&](const BufferSpec& buffer) {
    return !buffer.per_rank || shards == comm.size();
  };
  // Ranks with few shards or none wait for those with many.
  Agreement agreement = WorkTogether(comm, [&](const TickFunction& tick) {
    Ticks ticks(tick);
    return ReadShareSafely(path, manifest, share, wanted, &ticks, &mine);
  });
  GACCD_RETURN_IF_ERROR(std::move(agreement.status));

  LoadedState state{
      .generation = generation, .manifest = std::move(manifest), .job = *std::move(job)};
  for (std::size_t b = 0; b < mine.size(); ++b) {
    const BufferSpec& buffer = state.manifest.buffers[b];
    if (buffer.per_rank) {
      state.buffers.push_back(std::move(mine[b]));
      continue;
    }
    GACCD_ASSIGN_OR_RETURN(auto whole, Exchange(comm, buffer, shards, std::move(mine[b])));
    state.buffers.push_back(std::move(whole));
  }
  GACCD_RETURN_IF_ERROR(
      CheckParametersFinite(state.manifest, AsFloats(state.buffers[0])).WithContext(path));
  return state;
}

Result<LoadOutcome> LoadNewest(Communicator& comm, const std::string& folder,
                               const AcceptManifest& accept, std::int64_t since) {
  Result<std::string> names = Status(ErrorKind::kInternal, "rank 0 lists the folder");
  if (comm.rank() == 0) {
    const auto all = TwiceIfUnreadable([&] { return ListGenerations(folder); });
    names = all.ok() ? Result<std::string>(NamesText(*all)) : Result<std::string>(all.status());
  }
  GACCD_ASSIGN_OR_RETURN(names, ShareFromRank(comm, 0, names));
  LoadOutcome outcome;
  for (const Generation& generation : ParseNames(*names)) {
    if (generation.epoch < since) continue;
    if (!generation.committed) {
      outcome.refused.push_back(StrCat(generation.name(), ": unfinished: no manifest"));
      continue;
    }
    auto state =
        TwiceIfUnreadable([&] { return LoadGeneration(comm, folder, generation, accept); });
    if (state.ok()) {
      outcome.state = *std::move(state);
      return outcome;
    }
    if (!IsDamage(state.status())) return state.status();
    outcome.refused.push_back(StrCat(generation.name(), ": ", state.status().message()));
    ++outcome.damaged;
    if (state.status().kind() == ErrorKind::kIo && outcome.unreadable.empty()) {
      outcome.unreadable = outcome.refused.back();
    }
  }
  return outcome;
}

Status VerifyGeneration(const std::string& folder, const Generation& generation) {
  const std::string path = generation.PathIn(folder);
  GACCD_ASSIGN_OR_RETURN(const Manifest manifest, ReadManifest(folder, generation));
  GACCD_RETURN_IF_ERROR(CheckedJob(manifest).status().WithContext(path));
  const Wanted wanted = [](const BufferSpec& buffer) { return buffer.name == kParametersBuffer; };
  for (std::int64_t rank = 0; rank < manifest.world(); ++rank) {
    std::vector<std::vector<std::byte>> mine;
    GACCD_RETURN_IF_ERROR(
        ReadShareSafely(path, manifest, {rank, rank + 1}, wanted, nullptr, &mine));
    const std::uint64_t first = PartRange(manifest.buffers[0], rank, manifest.world()).offset;
    GACCD_RETURN_IF_ERROR(CheckParametersFinite(manifest, AsFloats(mine[0]),
                                                static_cast<std::int64_t>(first / sizeof(float)))
                              .WithContext(path));
  }
  return Status::Ok();
}

Result<std::vector<std::byte>> ReadBuffer(const std::string& folder, const Generation& generation,
                                          const Manifest& manifest, std::string_view buffer,
                                          std::uint64_t first, Ticks* ticks) {
  const auto spec = std::ranges::find(manifest.buffers, buffer, &BufferSpec::name);
  if (spec == manifest.buffers.end() || spec->per_rank || spec->bytes < first) {
    return Status(ErrorKind::kData, StrCat(generation.name(), ": has no buffer '", buffer,
                                           "' of at least ", first, " bytes"));
  }
  const std::string path = generation.PathIn(folder);
  const std::int64_t world = manifest.world();
  const auto file_of = [&](std::int64_t rank) { return StrCat(path, "/", ShardName(rank, world)); };
  // All sizes are checked before memory is allocated.
  for (std::int64_t rank = 0; rank < world; ++rank) {
    GACCD_RETURN_IF_ERROR(CheckSize(file_of(rank), ShardBytes(MakeShardIdentity(manifest, rank))));
  }
  std::vector<std::byte> bytes;
  try {
    bytes.resize(spec->bytes - first);
  } catch (const std::bad_alloc&) {
    return NoMemory(StrCat("the ", buffer, " of '", path, "'"), spec->bytes - first);
  }
  for (std::int64_t rank = 0; rank < world; ++rank) {
    const ByteRange part = PartRange(*spec, rank, world);
    const std::uint64_t from = std::max(part.offset, first);
    if (from >= part.offset + part.bytes) continue;
    const std::span<const BufferSpec> before(manifest.buffers.begin(), spec);
    GACCD_RETURN_IF_ERROR(ReadShardPart(
        file_of(rank), MakeShardIdentity(manifest, rank),
        PayloadBytes(before, rank, world) + from - part.offset,
        std::span(bytes).subspan(from - first, part.offset + part.bytes - from), ticks));
  }
  return bytes;
}

}  // namespace gaccd
