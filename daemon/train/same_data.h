// Every rank opens the data itself, maybe a copy on its own node. A stale copy would make it draw
// other samples than the plan says, which counts alone do not show.
#pragma once

#include <string>

#include "collectives/base/result.h"
#include "collectives/comm/communicator.h"
#include "daemon/checkpoint/manifest.h"
#include "daemon/data/dataset.h"

namespace gaccd {

// `eval` may be null.
[[nodiscard]] DataContent ContentOf(const Dataset& train, const Dataset* eval);

// For people, of a run that resumes: which data has changed since the checkpoint; empty: none that
// is known.
[[nodiscard]] std::string ChangedDataText(const DataContent& saved, const DataContent& now);

// Collective. kConfig on every rank, with rank, host and both values, when the ranks do not have
// the same data: size, shape, and the content of a few samples from the first to the last; and
// which records are damaged: a page that only one node reads wrongly would give it other samples
// than the plan says. `eval` may be null.
Status CheckSameData(Communicator& comm, const Dataset& train, const Dataset* eval);

// Collective. The data sets are what they were when they were opened: CheckUnchanged() of all
// ranks.
Status CheckUnchangedData(Communicator& comm, const Dataset& train, const Dataset* eval);

}  // namespace gaccd
