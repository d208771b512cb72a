// Several files as one data set. A '*' in the file name of a path matches any text, and the source
// becomes one source per match: "train-*.tokens.npy" with "train-*.lengths.npy" means
// train-00.tokens.npy with train-00.lengths.npy, train-01 with train-01, and so on, sorted by the
// matched text.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/config/job.h"
#include "daemon/data/dataset.h"

namespace gaccd {

// One source per match; `source` itself if no path has a '*'. A relative path without a match is
// looked up in `folder`, unless it is empty. Errors: kIo for a path without a match; kConfig for
// more than one '*' in a path, a '*' in the name of a folder, or a path without '*' next to others
// with one; kData, with the missing file, if the paths match different texts.
Result<std::vector<SourceSpec>> ExpandPatterns(const SourceSpec& source, const std::string& folder);

// Whether it is such a path: its file name has a '*'. A '*' in the name of a folder is part of it
// if there is such a folder; otherwise the path counts as well, so that MatchFiles() refuses it.
[[nodiscard]] bool NamesFiles(const std::string& path, const std::string& folder);

// The files that match one such path, by matched text; at least one. Errors as above.
Result<std::map<std::string, std::string>> MatchFiles(const std::string& pattern,
                                                      const std::string& folder);

// kData if the features of one are stored as integers and those of the other as floats: most likely
// 0 to 255 and 0 to 1, which one normalisation cannot fit. what, first_what: names for the message.
// expected, found: Dataset::has_integer_features().
[[nodiscard]] Status CheckSameStorage(std::optional<bool> expected, std::optional<bool> found,
                                      std::string_view what, std::string_view first_what);

// Concatenates the samples of `parts`, at least one. A damaged record is replaced by a sample of
// the same part. kData if their specs differ, or CheckSameStorage().
Result<std::unique_ptr<Dataset>> JoinDatasets(std::vector<std::unique_ptr<Dataset>> parts);

}  // namespace gaccd
