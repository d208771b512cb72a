// Checks that all ranks train the same model on the same data.
#pragma once

#include <cstdint>
#include <string>

#include "collectives/base/result.h"
#include "collectives/comm/communicator.h"
#include "daemon/checkpoint/manifest.h"
#include "daemon/data/dataset.h"
#include "daemon/engine/engine.h"

namespace gaccd {

// ReplicaCheck: checks that the parameters are bit-identical on all ranks.
class ReplicaCheck {
 public:
  // Checks after every `every` updates, and after the last one; 0: never. `comm` must outlive it.
  ReplicaCheck(Communicator& comm, std::int64_t every, std::int64_t last)
      : comm_(&comm), every_(every), last_(last) {}

  [[nodiscard]] bool Due(std::int64_t step) const {
    return every_ > 0 && (step % every_ == 0 || step == last_);
  }
  // The digest of the parameters after update `step`; empty if no check is due. Collective. If they
  // differ: kInternal on all ranks, and *differ is set; other errors are local.
  Result<std::string> Compare(Engine& engine, std::int64_t step, bool* differ) const;

 private:
  Communicator* comm_;
  std::int64_t every_;
  std::int64_t last_;
};

// Checks that all ranks have the same data. Every rank opens the data itself, possibly a copy on
// its node; a stale copy would give other samples than the plan expects, which counts alone do not
// show.

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
