// Opens the data of a job on all ranks: on nodes with several ranks, the first one unpacks and
// checks it, and the others use the result.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "collectives/bootstrap/agree.h"
#include "collectives/comm/communicator.h"
#include "daemon/config/job.h"
#include "daemon/data/dataset.h"

namespace gaccd {

// Opens on one rank. share: that of its node.
using OpenOnRank = std::function<Status(NodeShare* share)>;

// Collective; the same result on every rank. A rank that works for a long time does not make the
// others time out; a rank that hangs does. If a node cannot share the data, each of its ranks opens
// it, and rank 0 logs a warning with the reason.
Agreement OpenSharedData(Communicator& comm, const OpenOnRank& open);
// Opens training and evaluation data of a job.
Agreement OpenSharedData(Communicator& comm, const Job& job, const BadRecordRules& rules,
                         TrainingData* data);

// Collective: returns the result of `read()` on rank 0 on all ranks.
Result<std::vector<std::string>> NamesFromRankZero(
    Communicator& comm, const std::function<Result<std::vector<std::string>>()>& read);

}  // namespace gaccd
