// The data.json that tools/prepare leaves beside the arrays that it made.
#pragma once

#include <string>
#include <string_view>

#include "daemon/data/array.h"

namespace gaccd {

// If the folder of the file `array.name` has a data.json that names this file, they must belong
// together: the shape, the type, the digest (SHA-256, once a node); and the vocabulary must not be
// larger than the job's. kData with the expected and the found value; kIo. Where there is no
// data.json, or the first 1 MiB of it, whatever it is, does not name the file: OK.
Status CheckPrepared(const Array& array, std::int64_t vocabulary, NodeShare* share);

// The same of the text of such a file; of an array without a file the digest is not asked.
Status CheckDataJson(const std::string& path, std::string_view text, const Array& array,
                     std::int64_t vocabulary, NodeShare* share);

}  // namespace gaccd
