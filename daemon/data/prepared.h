// The data.json that tools/prepare leaves next to the arrays that it made.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "daemon/data/array.h"

namespace gaccd {

// If the folder of the file `array.name` has a data.json that names this file, they must belong
// together: the shape, the type, the digest (SHA-256, once a node); and the vocabulary must not be
// larger than the job's. kData with the expected and the found value; kIo. Where there is no
// data.json, or the first 1 MiB of it, whatever it is, does not name the file: OK.
Status CheckPrepared(const Array& array, std::int64_t vocabulary, NodeShare* share);

// The tokenizer.json `tokenizer`, which is at `path`, is the one of which the data.json next to it
// speaks, and says itself what comes before and after a text of rows. kData. Where there is no
// such data.json: OK; kIo.
Status CheckPreparedTokenizer(const std::string& path, std::string_view tokenizer);

// The data.json next to the file `path`.
[[nodiscard]] std::string DataJsonPath(const std::string& path);

// The names of the classes that `text`, such a file, has, by their numbers. Empty: it has none, or
// does not name the file `path`.
[[nodiscard]] std::vector<std::string> PreparedClasses(std::string_view text,
                                                       const std::string& path);

// CheckPrepared() with the text of such a file; the digest of an array without a file is not asked.
Status CheckDataJson(const std::string& path, std::string_view text, const Array& array,
                     std::int64_t vocabulary, NodeShare* share);

}  // namespace gaccd
