// Damaged records: labels that are no class, values that are not finite. They are found when a data
// set is opened; the user chooses how to handle them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "collectives/base/result.h"
#include "daemon/config/flags_spec.h"
#include "daemon/data/dataset.h"

namespace gaccd {

// Collects them while a data set is opened. Not thread-safe.
class BadRecords {
 public:
  explicit BadRecords(const BadRecordRules& rules = {}) : rules_(rules) {}

  // `damage`: kData, naming file, sample and value. Policy stop: hands it back. Policy skip: OK,
  // and the sample is remembered; kData when there are more than the quota.
  Status Take(std::int64_t sample, Status damage);

  // The data set without them; kData when no sample is left. Either another sample takes the
  // place of each: the same one in every epoch, on every rank, on any number of ranks, for it is a
  // function of (seed, sample). The size stays, so every batch stays exact. Or, with leave_out, the
  // set has only the others, in their order.
  Result<std::unique_ptr<Dataset>> Skip(std::unique_ptr<Dataset> dataset) &&;

 private:
  // For found_, by sample.
  [[nodiscard]] std::vector<BadRecord> Records(std::int64_t samples) const;

  BadRecordRules rules_;
  std::map<std::int64_t, std::string> found_;
};

}  // namespace gaccd
