#include <sstream>
#include <utility>

#include "collectives/base/files.h"
#include "collectives/base/strings.h"
#include "daemon/checkpoint/writer.h"
#include "daemon/rundir/agreement.h"

namespace gaccd {
namespace {

Status MakeFolder(const CheckpointOptions& options) {
  GACCD_RETURN_IF_ERROR(
      MakeFolders(options.folder, (options.group_access ? kGroupMayRead : Modes()).folder));
  // Files fsynced in a folder are lost if the folder's own name is not synced.
  return SyncFolder(FolderOf(options.folder));
}

Result<WriterLease> TakeLease(const CheckpointOptions& options, const OwnerName& me) {
  GACCD_RETURN_IF_ERROR(MakeFolder(options).WithContext("checkpoints"));
  return WriterLease::Take(options.folder, me, options.lease_patience);
}

}  // namespace

Result<CheckpointLease> CheckpointWriter::Claim(Communicator& comm,
                                                const CheckpointOptions& options,
                                                const OwnerName& me) {
  CheckpointLease claimed;
  Result<std::string> numbers = std::string();
  if (comm.rank() == 0) {
    auto lease = TakeLease(options, me);
    if (!lease.ok()) {
      numbers = lease.status();
    } else {
      claimed.lease = *std::move(lease);
      const TrainingStart& training = claimed.lease->training();
      numbers = StrCat(claimed.lease->epoch(), " ", claimed.lease->job_since(), " ", training.since,
                       " ", training.from);
    }
  }
  GACCD_ASSIGN_OR_RETURN(numbers, ShareFromRankZero(comm, numbers));
  std::istringstream fields(*numbers);
  fields >> claimed.epoch >> claimed.job_since >> claimed.training.since;
  fields.get();
  std::getline(fields, claimed.training.from, '\0');
  return claimed;
}

Status CheckpointLease::BeginTraining(const std::string& from) {
  training = {.since = epoch, .from = from};
  return lease ? lease->BeginTraining(from) : Status::Ok();
}

}  // namespace gaccd
