// Names of classes. The same label must mean the same class in training, evaluation and prediction
// data and in the weights.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "collectives/base/result.h"
#include "daemon/config/job.h"

namespace gaccd {

struct ClassNames {
  std::vector<std::string> names;  // by label; empty: unknown
  std::string from;                // the file or folder that defines them, for messages
  bool folders = false;            // the names are those of the folders of images in `from`
};

// kData with the first label whose names differ. The lists may have different lengths.
[[nodiscard]] Status CheckSameClasses(const ClassNames& expected, const ClassNames& found);

// The longest of these lists, as UTF-8: data.class_name and, for data.train and data.eval, the
// data.json next to labels and tokens, and the image folders. kData if they disagree; kIo.
[[nodiscard]] Result<ClassNames> ReadClassNames(const Job& job);

// data.class_name, as ReadClassNames() has set it. `from` is for messages.
[[nodiscard]] ClassNames JobClassNames(const DataSpec& data, std::string from);

// The names in the metadata of a safetensors file, else id2label in the config.json next to it, as
// written by transformers.
[[nodiscard]] ClassNames ReadWeightsClassNames(const std::string& path,
                                               const std::map<std::string, std::string>& metadata);

// The names as metadata of weights.
[[nodiscard]] std::map<std::string, std::string> ClassMetadata(
    const std::vector<std::string>& names);

// Conversion of a list of names to text and back; empty for any other text.
[[nodiscard]] std::string ClassNamesText(const std::vector<std::string>& names);
[[nodiscard]] std::vector<std::string> ParseClassNames(const std::string& text);

}  // namespace gaccd
