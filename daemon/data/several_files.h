// Several files as one data set. A '*' in the file name of a path matches any text, and the
// source for one source a file: "train-*.tokens.npy" with "train-*.lengths.npy" are
// train-00.tokens.npy with train-00.lengths.npy, train-01 with train-01, and so on, in the order of
// what the '*' stands for.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "daemon/config/job.h"
#include "daemon/data/dataset.h"

namespace gaccd {

// `source` itself where no path has a '*'. A relative path without a match is looked for in
// `folder`, unless it is empty. Errors: kIo for a path without a match; kConfig for more than one
// '*', one in the name of a folder, or a path without one together with others; kData, with what is
// missing, for paths whose '*' stand for different texts.
Result<std::vector<SourceSpec>> ExpandPatterns(const SourceSpec& source, const std::string& folder);

// The files of one such path, by what the '*' stands for; at least one. Errors as above.
Result<std::map<std::string, std::string>> FilesLike(const std::string& pattern,
                                                     const std::string& folder);

// The samples of `parts`, at least one, one part after the other. A damaged record was replaced by
// one of its own part. kData for parts whose samples differ in kind.
Result<std::unique_ptr<Dataset>> JoinDatasets(std::vector<std::unique_ptr<Dataset>> parts);

}  // namespace gaccd
