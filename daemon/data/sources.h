// Functions that open each kind of source, called by OpenDataset().
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "collectives/base/result.h"
#include "daemon/config/job.h"
#include "daemon/data/dataset.h"

namespace gaccd {

// Arguments for opening a source.
struct OpenContext {
  const NormalizeSpec& normalize;
  const BadRecordRules& rules;
  NodeShare* share;           // of this rank's node, or null
  const std::string& folder;  // of the job; empty: none
  // The names of the columns of tables in the order of the values; not null for tables. If empty,
  // set to those of the first table with names.
  std::vector<std::string>* column_names = nullptr;

  // Returns absolute paths unchanged; looks up relative paths in the current folder, then in the
  // job's folder. kIo if it is in neither.
  [[nodiscard]] Result<std::string> Locate(const std::string& path) const;
};

using OpenedDataset = Result<std::unique_ptr<Dataset>>;
OpenedDataset OpenSource(const IdxSpec& source, const OpenContext& opening);
OpenedDataset OpenSource(const NpySpec& source, const OpenContext& opening);
OpenedDataset OpenSource(const SyntheticSpec& source, const OpenContext& opening);
OpenedDataset OpenSource(const TokensSpec& source, const OpenContext& opening);
OpenedDataset OpenSource(const StreamSpec& source, const OpenContext& opening);
OpenedDataset OpenSource(const ArraysSpec& source, const OpenContext& opening);
OpenedDataset OpenSource(const CsvSpec& source, const OpenContext& opening);
OpenedDataset OpenSource(const ImagesSpec& source, const OpenContext& opening);

// A regression data set without files: y = W x + noise * e, with x and e standard normal. Sample i
// is a function of (seed, i), computed on demand. W is standard normal and a function of (features,
// outputs): sets with different seeds have different samples of the same function, for training and
// evaluation. The normalisation is applied to x after y was computed. kConfig for a count below 1,
// a noise outside [0, 1e30], or a W of more than 2^26 elements.
Result<std::unique_ptr<Dataset>> MakeSynthetic(const SyntheticSpec& source,
                                               const NormalizeSpec& normalize);

}  // namespace gaccd
