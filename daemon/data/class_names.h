// Names of classes. Labels are numbers: the same number must be the same class in the data of the
// training, of the evaluation and of a prediction, and in the weights.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "collectives/base/result.h"
#include "daemon/config/job.h"

namespace gaccd {

struct ClassNames {
  std::vector<std::string> names;  // by number; empty: not known
  std::string from;                // the file that has them, for messages
  bool folders = false;            // they are the names of folders of images in it
};

// kData, with the first number that is another class in both. A list may have fewer classes.
[[nodiscard]] Status CheckSameClasses(const ClassNames& expected, const ClassNames& found);

// data.class_name of the job and, for data.train and data.eval, the names in the data.json next to
// labels and tokens and those of the folders of images, which must agree; the longest list of them,
// as UTF-8. kData; kIo.
[[nodiscard]] Result<ClassNames> ReadClassNames(const Job& job);

// The names in the metadata of a safetensors file, else in the config.json next to it, as
// transformers has them (id2label). Nothing else in that file is looked at.
[[nodiscard]] ClassNames ReadClassNamesOfWeights(
    const std::string& path, const std::map<std::string, std::string>& metadata);

// The metadata of weights whose classes have these names.
[[nodiscard]] std::map<std::string, std::string> ClassMetadata(
    const std::vector<std::string>& names);

// A list of names as text, and back; what is no such text has none.
[[nodiscard]] std::string ClassNamesText(const std::vector<std::string>& names);
[[nodiscard]] std::vector<std::string> ParseClassNames(const std::string& text);

}  // namespace gaccd
