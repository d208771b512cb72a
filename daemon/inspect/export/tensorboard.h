// Events as files that TensorBoard opens.
#pragma once

#include <string>
#include <vector>

#include "collectives/base/result.h"

namespace gaccd {

// <folder>/<attempt>/events.out.tfevents.<start>.<host>.gaccd: an attempt is a run of TensorBoard,
// for updates that were done twice would be one curve else. A file is a TFRecord of the scalars of
// scalars.h; it appears whole, and replaces one of the same name. Arguments, errors: ExportCsv();
// kIo for the files.
Status ExportTensorboard(const std::string& run_dir, const std::string& attempt,
                         const std::string& folder, std::vector<std::string>* notes);

}  // namespace gaccd
