// Checks that all ranks have the same data. Every rank opens the data itself, possibly a copy on
// its node; a stale copy would give other samples than the plan expects, which counts alone do not
// show.
#pragma once

#include <string>

#include "collectives/base/result.h"
#include "collectives/comm/communicator.h"
#include "daemon/checkpoint/manifest.h"
#include "daemon/data/dataset.h"

namespace gaccd {

// `eval` may be null.
[[nodiscard]] DataContent HashContent(const Dataset& train, const Dataset* eval);

// A warning for a run that resumes: which data has changed since the checkpoint. Empty if none is
// known to have changed.
[[nodiscard]] std::string ChangedDataText(const DataContent& saved, const DataContent& now);

// Collective. kConfig on every rank, with rank, host and both values, if the data differ between
// ranks: size, shape, the content of a few samples from the first to the last, or the damaged
// records (a page that only one node reads wrongly would give it other samples). `eval` may be
// null.
Status CheckSameData(Communicator& comm, const Dataset& train, const Dataset* eval);

// Collective. CheckUnchanged() on all ranks: the data sets have not changed since they were opened.
Status CheckUnchangedData(Communicator& comm, const Dataset& train, const Dataset* eval);

}  // namespace gaccd
