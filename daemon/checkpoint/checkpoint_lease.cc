#include <sstream>
#include <utility>

#include "collectives/base/files.h"
#include "collectives/base/strings.h"
#include "collectives/bootstrap/share_text.h"
#include "daemon/checkpoint/writer.h"

namespace gaccd {
namespace {

Status MakeFolder(const CheckpointOptions& options) {
  GACCD_RETURN_IF_ERROR(
      MakeFolders(options.folder, (options.group_access ? kGroupMayRead : Modes()).folder));
  // Files fsynced in a folder are lost if the folder's own name is not synced.
  return SyncFolder(ParentFolder(options.folder));
}

Result<WriterLease> AcquireLease(const CheckpointOptions& options, const OwnerName& me) {
  GACCD_RETURN_IF_ERROR(MakeFolder(options).WithContext("checkpoints"));
  return WriterLease::Acquire(options.folder, me, options.lease_patience);
}

std::string TrainingText(const TrainingStart& training) {
  return StrCat(training.since, " ", training.back_since, " ", training.back_to, " ",
                training.from);
}

TrainingStart ParseTrainingStart(std::istringstream& text) {
  TrainingStart training;
  text >> training.since >> training.back_since;
  text.get();
  std::getline(text, training.back_to, ' ');
  std::getline(text, training.from, '\0');
  return training;
}

}  // namespace

Result<TrainingStart> CheckpointWriter::FindNewestTraining(Communicator& comm,
                                                           const std::string& folder) {
  GACCD_ASSIGN_OR_RETURN(
      const std::string text,
      ShareFromRank(comm, 0, comm.rank() == 0 ? TrainingText(NewestTraining(folder)) : ""));
  std::istringstream fields(text);
  return ParseTrainingStart(fields);
}

Result<CheckpointLease> CheckpointWriter::Claim(Communicator& comm,
                                                const CheckpointOptions& options,
                                                const OwnerName& me) {
  CheckpointLease claimed;
  Result<std::string> numbers = std::string();
  if (comm.rank() == 0) {
    auto lease = AcquireLease(options, me);
    if (!lease.ok()) {
      numbers = lease.status();
    } else {
      claimed.lease = *std::move(lease);
      numbers = StrCat(claimed.lease->epoch(), " ", claimed.lease->job_since(), " ",
                       TrainingText(claimed.lease->training()));
    }
  }
  GACCD_ASSIGN_OR_RETURN(numbers, ShareFromRank(comm, 0, numbers));
  std::istringstream fields(*numbers);
  fields >> claimed.epoch >> claimed.job_since;
  claimed.training = ParseTrainingStart(fields);
  return claimed;
}

Status CheckpointLease::BeginTraining(const std::string& from) {
  training = {.since = epoch, .from = from};
  return lease ? lease->BeginTraining(from) : Status::Ok();
}

Status CheckpointLease::GoBackTo(const std::string& generation) {
  training.back_since = epoch;
  training.back_to = generation;
  return lease ? lease->GoBackTo(generation) : Status::Ok();
}

}  // namespace gaccd
