// How the source of a job is opened: a function for each format, called by OpenDataset().
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "collectives/base/result.h"
#include "daemon/config/job.h"
#include "daemon/data/dataset.h"

namespace gaccd {

// What a source is opened with, besides itself.
struct Opening {
  const NormalizeSpec& normalize;
  const BadRecordRules& rules;
  NodeShare* share;           // of this rank's node, or null
  const std::string& folder;  // of the job; empty: none
  // Names of the columns of tables, in the order of the values; required for tables. Empty: they
  // become those of the first table that has some.
  std::vector<std::string>* column_names = nullptr;

  // "/data/x" stays; "x" is that of the current folder or, where there is none, of the job's
  // folder. kIo when it is in neither.
  [[nodiscard]] Result<std::string> Locate(const std::string& path) const;
};

using OpenedDataset = Result<std::unique_ptr<Dataset>>;
OpenedDataset OpenSource(const IdxSpec& source, const Opening& opening);
OpenedDataset OpenSource(const NpySpec& source, const Opening& opening);
OpenedDataset OpenSource(const SyntheticSpec& source, const Opening& opening);
OpenedDataset OpenSource(const TokensSpec& source, const Opening& opening);
OpenedDataset OpenSource(const StreamSpec& source, const Opening& opening);
OpenedDataset OpenSource(const ArraysSpec& source, const Opening& opening);
OpenedDataset OpenSource(const CsvSpec& source, const Opening& opening);
OpenedDataset OpenSource(const ImagesSpec& source, const Opening& opening);

}  // namespace gaccd
