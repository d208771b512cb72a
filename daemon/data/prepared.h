// The data.json that tools/prepare writes next to its arrays.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "daemon/data/formats/array.h"

namespace gaccd {

// If the folder of the file `array.name` has a data.json that names this file, its shape, type and
// SHA-256 (computed once per node) must match, and its vocabulary must not exceed the job's. kData
// with expected and found value; kIo. OK if there is no data.json, or its first 1 MiB does not name
// the file.
Status CheckPrepared(const Array& array, std::int64_t vocabulary, NodeShare* share);

// kData unless `tokenizer`, the content of the file at `path`, has the SHA-256 in the data.json
// next to it and, for BERT, a post_processor that adds [CLS] and [SEP]. OK if there is no such
// data.json; kIo.
Status CheckPreparedTokenizer(const std::string& path, std::string_view tokenizer);

// The path of the data.json next to the file `path`.
[[nodiscard]] std::string DataJsonPath(const std::string& path);

// The names of the classes, by label, in the data.json `text`. Empty if it has none, or does not
// name the file `path`.
[[nodiscard]] std::vector<std::string> PreparedClasses(std::string_view text,
                                                       const std::string& path);

// CheckPrepared() for the data.json `text`; does not check the digest of an array without a file.
Status CheckDataJson(const std::string& path, std::string_view text, const Array& array,
                     std::int64_t vocabulary, NodeShare* share);

}  // namespace gaccd
