#include "daemon/checkpoint/save_task.h"

#include <unistd.h>

#include <cstdio>

#include "collectives/base/files.h"
#include "collectives/base/strings.h"

namespace gaccd {

Result<ShardRecord> WriteShardOf(const std::string& folder, const Generation& generation,
                                 const ShardIdentity& identity,
                                 std::span<const std::span<const std::byte>> parts,
                                 SaveModes modes) {
  const std::string path = StrCat(folder, "/", generation.name());
  GACCD_RETURN_IF_ERROR(MakeFolders(path, modes.folder));
  GACCD_RETURN_IF_ERROR(OpenOwnFolder(path).status());  // no link, nobody else's
  return WriteShard(StrCat(path, "/", ShardName(identity.rank, identity.world)), identity, parts,
                    modes.file);
}

Status CommitManifest(const std::string& folder, const Manifest& manifest, const WriterLease& lease,
                      SaveModes modes) {
  const Generation generation{manifest.writer_epoch, manifest.cursor.step,
                              manifest.cursor.micro_step};
  const std::string path = StrCat(folder, "/", generation.name(), "/", kManifestName);
  const std::string text = EncodeManifest(manifest);
  GACCD_RETURN_IF_ERROR(SyncFolder(folder));  // the name of the generation's folder
  GACCD_ASSIGN_OR_RETURN(DurableFile file, DurableFile::Create(path, modes.file));
  GACCD_RETURN_IF_ERROR(file.Write(std::as_bytes(std::span(text))));
  GACCD_RETURN_IF_ERROR(file.Finish());
  GACCD_RETURN_IF_ERROR(lease.Check());
  GACCD_RETURN_IF_ERROR(file.Publish());
  // For people; whether it is there or right does not matter.
  (void)ReplaceFile(StrCat(folder, "/LATEST"), StrCat(generation.name(), "\n"), false, modes.file);
  return Status::Ok();
}

void Discard(const std::string& folder, const Generation& generation, std::int64_t rank,
             std::int64_t world) {
  const std::string path = StrCat(folder, "/", generation.name());
  const auto open = OpenOwnFolder(path);
  if (!open.ok()) return;
  if (rank == 0) ::unlinkat(open->get(), std::string(kManifestName).c_str(), 0);
  ::unlinkat(open->get(), ShardName(rank, world).c_str(), 0);
  ::rmdir(path.c_str());  // by the last rank; fails for the others
}

}  // namespace gaccd
