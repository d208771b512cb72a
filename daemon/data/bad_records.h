// Damaged records: labels outside the classes, values that are not finite, images that cannot be
// decoded. They are detected when a data set is opened; the job chooses how to handle them.
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

// Collects damaged records while a data set is opened. Not thread-safe.
class BadRecords {
 public:
  explicit BadRecords(const BadRecordRules& rules = {}) : rules_(rules) {}

  // `damage`: kData with file, sample and value. Policy stop: returns `damage`. Policy skip:
  // records the sample; kData if the quota is exceeded.
  Status Add(std::int64_t sample, Status damage);

  // The data set without the damaged records; kData if no sample remains. By default each is
  // replaced by an intact sample, a function of (seed, sample), so it is the same in every epoch
  // and on any number of ranks, and the size is unchanged. With leave_out the set contains only the
  // intact samples, in their order.
  Result<std::unique_ptr<Dataset>> Skip(std::unique_ptr<Dataset> dataset) &&;

 private:
  // The records of found_, by sample.
  [[nodiscard]] std::vector<BadRecord> Records(std::int64_t samples) const;

  BadRecordRules rules_;
  std::map<std::int64_t, std::string> found_;
};

}  // namespace gaccd
