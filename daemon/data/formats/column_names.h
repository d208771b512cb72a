// Names of the columns of tables (csv). Models identify values by position, so the columns must
// have the same order in training, evaluation and prediction data.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/base/result.h"
#include "daemon/config/job.h"

namespace gaccd {

// The fields of `line`, as UTF-8, if it is a header: no field is a number, and not all are missing.
// Otherwise empty.
[[nodiscard]] std::vector<std::string> ParseHeaderLine(std::string_view line);

// The index in `found` of each name in `expected`. kData with both lists if `found` is not a
// permutation of `expected`; if a name repeats in `found`, the lists must be equal.
[[nodiscard]] Result<std::vector<std::int64_t>> MatchColumns(
    const std::vector<std::string>& expected, const std::vector<std::string>& found);

// kData with both lists if the columns of `from` and of the job's data differ in name or order. OK
// if either list is empty.
[[nodiscard]] Status CheckSameColumns(const std::vector<std::string>& expected,
                                      std::string_view from, const std::vector<std::string>& found);

// Whether columns of the source can have names.
[[nodiscard]] bool IsTable(const SourceSpec& source);

// The names in the first table of the source that has a header; empty if there is none. Unreadable
// files are skipped. kData for a header that is too long.
[[nodiscard]] Result<std::vector<std::string>> ReadTableColumnNames(const SourceSpec& source);

// data.column_name of the job, else ReadTableColumnNames() of data.train, then of data.eval.
[[nodiscard]] Result<std::vector<std::string>> ReadColumnNames(const Job& job);

// What weights mean besides their values, as their metadata: the names of classes and columns, how
// features were stored and normalised.
[[nodiscard]] std::map<std::string, std::string> DataMetadata(const DataSpec& data);
// Of such metadata. kData if features are now stored in another way under the same normalisation.
// Returns a warning for another normalisation, empty for the same and if one of them is unknown.
[[nodiscard]] Result<std::string> CheckSameFeatures(
    const std::map<std::string, std::string>& trained,
    const std::map<std::string, std::string>& now, std::string_view from);

// The names of columns in such metadata.
[[nodiscard]] std::vector<std::string> ColumnNamesFromMetadata(
    const std::map<std::string, std::string>& metadata);

}  // namespace gaccd
