#include "daemon/checkpoint/save_task.h"

#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <new>
#include <utility>

#include "collectives/base/strings.h"
#include "collectives/base/time.h"
#include "daemon/rundir/safe_place.h"

namespace gaccd {
namespace {

// Converts exceptions to errors, as a task must not throw.
template <typename Work>
Status Safely(const Work& work) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    return {ErrorKind::kOs, "checkpoints: no memory to write with"};
  }
}

Status WriteOwnShard(const SaveState& state, const PendingSave& save, ShardRecord* record) {
  const ShardIdentity identity{.rank = state.rank,
                               .world = state.world,
                               .step = save.generation.step,
                               .micro_step = save.generation.micro_step,
                               .writer_epoch = state.epoch,
                               .block_bytes = state.options.block_bytes,
                               .buffers = save.manifest.buffers};
  std::vector<std::span<const std::byte>> parts;
  std::span<const std::byte> rest = state.slots[save.slot].bytes;
  for (const BufferSpec& buffer : identity.buffers) {
    const std::uint64_t bytes = PartRange(buffer, identity.rank, identity.world).bytes;
    parts.push_back(rest.first(bytes));
    rest = rest.subspan(bytes);
  }
  const std::string& folder = state.options.folder;
  // If others can write in the folder above, they may have replaced it.
  for (const std::string& place : {ParentFolder(folder), folder}) {
    GACCD_RETURN_IF_ERROR(CheckSafePlace(place));
  }
  GACCD_ASSIGN_OR_RETURN(*record,
                         WriteRankShard(folder, save.generation, identity, parts, state.modes));
  record->partial = save.partial;
  return Status::Ok();
}

Status CommitManifest(const SaveState& state, const PendingSave& save) {
  const std::string path = StrCat(save.generation.PathIn(state.options.folder), "/", kManifestName);
  const std::string text = EncodeManifest(save.manifest);
  GACCD_RETURN_IF_ERROR(SyncFolder(state.options.folder));  // the name of the generation's folder
  GACCD_ASSIGN_OR_RETURN(DurableFile file, DurableFile::Create(path, state.modes.file));
  GACCD_RETURN_IF_ERROR(file.Write(std::as_bytes(std::span(text))));
  GACCD_RETURN_IF_ERROR(file.Finish());
  GACCD_RETURN_IF_ERROR(state.lease->Check());
  GACCD_RETURN_IF_ERROR(file.Publish());
  const auto found = ReadManifestFile(save.generation.PathIn(state.options.folder));
  if (!found.ok() || *found != text) {
    ::unlink(path.c_str());
    return found.ok()
               ? Status(ErrorKind::kIo, StrCat("'", path, "' reads differently than written"))
               : found.status();
  }
  // For users; a failure does not matter.
  (void)ReplaceFile(StrCat(state.options.folder, "/LATEST"), StrCat(save.generation.name(), "\n"),
                    false, state.modes.file);
  return Status::Ok();
}

// Before another rank knows that the commit has failed and removes its shard: a generation with a
// manifest must have all its shards.
void RemoveManifest(const std::string& folder, const Generation& generation) {
  const auto open = OpenOwnFolder(generation.PathIn(folder));
  if (!open.ok()) return;
  ::unlinkat(open->get(), std::string(kManifestName).c_str(), 0);
  ::fsync(open->get());
}

}  // namespace

void RunTasks(SaveState& state) {
  for (;;) {
    std::function<void()> task;
    {
      const std::lock_guard lock(state.mutex);
      if (state.tasks.empty()) return;
      task = std::move(state.tasks.front());
      state.tasks.pop_front();
    }
    task();
  }
}

Result<ShardRecord> WriteRankShard(const std::string& folder, const Generation& generation,
                                   const ShardIdentity& identity,
                                   std::span<const std::span<const std::byte>> parts, Modes modes) {
  const std::string path = generation.PathIn(folder);
  GACCD_RETURN_IF_ERROR(MakeFolders(path, modes.folder));
  GACCD_RETURN_IF_ERROR(OpenOwnFolder(path).status());  // rejects links and folders of other users
  return WriteShard(StrCat(path, "/", ShardName(identity.rank, identity.world)), identity, parts,
                    modes.file);
}

void WriteTask(SaveState& state, PendingSave& save) {
  const auto start = state.options.now();
  ShardRecord record;
  Status status = Safely([&] { return WriteOwnShard(state, save, &record); });
  const std::lock_guard lock(state.mutex);
  state.slots[save.slot].busy = false;
  save.result = std::move(status);
  save.record = record;
  save.took_s = SecondsSince(start, state.options.now());
  state.changed.notify_all();
}

void CommitTask(SaveState& state, PendingSave& save) {
  const auto start = state.options.now();
  const Status status = Safely([&] { return CommitManifest(state, save); });
  if (!status.ok()) RemoveManifest(state.options.folder, save.generation);
  {
    const std::lock_guard lock(state.mutex);
    save.result = status;
    save.took_s = SecondsSince(start, state.options.now());
    state.changed.notify_all();
  }
  if (!status.ok()) return;
  const Status pruned = Safely([&]() -> Status {
    GACCD_ASSIGN_OR_RETURN(const Pruned done,
                           Prune(state.options.folder, state.options.keep, state.epoch,
                                 /*intact=*/{}, state.since));
    return done.left == 0 ? Status::Ok() : Status(ErrorKind::kIo, done.why);
  });
  const std::lock_guard lock(state.mutex);
  if (!pruned.ok()) state.prune_problem = pruned.message();
}

void Discard(const std::string& folder, const Generation& generation, std::int64_t rank,
             std::int64_t world) {
  const auto open = OpenOwnFolder(generation.PathIn(folder));
  if (!open.ok()) return;
  ::unlinkat(open->get(), ShardName(rank, world).c_str(), 0);
}

Status CheckSpace(const SaveState& state, std::span<const BufferSpec> buffers) {
  struct statvfs info {};
  const auto there = ListGenerations(state.options.folder);
  if (!there.ok() || ::statvfs(state.options.folder.c_str(), &info) != 0) return Status::Ok();
  std::uint64_t bytes = 0;
  for (int rank = 0; rank < state.world; ++rank) {
    bytes += ShardBytes({.rank = rank,
                         .world = state.world,
                         .block_bytes = state.options.block_bytes,
                         .buffers = {buffers.begin(), buffers.end()}});
  }
  // Generations of earlier attempts already have their space.
  const auto kept = static_cast<std::uint64_t>(state.options.keep.newest) + state.options.keep.best;
  const std::uint64_t missing =
      kept - std::min<std::uint64_t>(kept, Since(*there, state.since).size()) + 2;
  const std::uint64_t free = std::uint64_t{info.f_bavail} * info.f_frsize;
  if (free / missing >= bytes) return Status::Ok();
  std::uint64_t needed = 0;
  if (__builtin_mul_overflow(missing, bytes, &needed)) return Status::Ok();  // nobody keeps as many
  return {ErrorKind::kIo,
          StrCat("'", state.options.folder, "' may become full: ", missing, " checkpoints of ",
                 bytes, " bytes are still to be written at the same time: expected ", needed,
                 " bytes free, found ", free)};
}

}  // namespace gaccd
