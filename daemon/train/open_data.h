// Opens the data of a job on all ranks: on nodes with several of them the first one unpacks and
// checks it, the others take what it made.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "collectives/bootstrap/agree.h"
#include "collectives/comm/communicator.h"
#include "daemon/config/job.h"
#include "daemon/data/dataset.h"

namespace gaccd {

// Opens on one rank. share: of its node.
using OpenOnRank = std::function<Status(NodeShare* share)>;

// Collective; the same answer on every rank. A rank that works for long does not let the others run
// into the bound of `comm`, one that hangs does. What a node cannot share is opened by each rank
// for itself, and a warning of rank 0 says why.
Agreement OpenSharedData(Communicator& comm, const OpenOnRank& open);
// Both sets of a job.
Agreement OpenSharedData(Communicator& comm, const Job& job, const BadRecordRules& rules,
                         TrainingData* data);

// Collective: what `read()` gives on rank 0, on all ranks.
Result<std::vector<std::string>> NamesFromRankZero(
    Communicator& comm, const std::function<Result<std::vector<std::string>>()>& read);

}  // namespace gaccd
