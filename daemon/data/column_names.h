// Names of the columns of tables (csv). A model takes values by their places: the same place must
// be the same column in the data of the training, of the evaluation and of a prediction.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/base/result.h"
#include "daemon/config/job.h"

namespace gaccd {

// The fields of a line of names, as UTF-8: none of them is a number, and not all are missing. Of
// other lines none.
[[nodiscard]] std::vector<std::string> NamesInLine(std::string_view line);

// The place in `found` of each of the `expected`. kData with both lists where they are not the same
// names in some order; names that are there twice tell no order.
[[nodiscard]] Result<std::vector<std::int64_t>> MatchColumns(
    const std::vector<std::string>& expected, const std::vector<std::string>& found);

// kData with both lists: the columns of what `from` names come in another order, or are others,
// than those of the job's data. Without names on a side: OK.
[[nodiscard]] Status CheckSameColumns(const std::vector<std::string>& expected,
                                      std::string_view from, const std::vector<std::string>& found);

// Whether the columns of this source can have names.
[[nodiscard]] bool IsTable(const SourceSpec& source);

// The names in the first table of a source that has some; none where there is no table. Files that
// cannot be read have none. kData for a line that is too long.
[[nodiscard]] Result<std::vector<std::string>> NamesOfTables(const SourceSpec& source);

// data.column_name of the job, else NamesOfTables() of data.train, then of data.eval.
[[nodiscard]] Result<std::vector<std::string>> ReadColumnNames(const Job& job);

// The metadata of weights that were trained on data of these names: classes and columns.
[[nodiscard]] std::map<std::string, std::string> NamesMetadata(const DataSpec& data);

// The columns in such metadata.
[[nodiscard]] std::vector<std::string> ColumnNamesIn(
    const std::map<std::string, std::string>& metadata);

}  // namespace gaccd
