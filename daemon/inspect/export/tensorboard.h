// Events as files for TensorBoard.
#pragma once

#include <string>
#include <vector>

#include "collectives/base/result.h"

namespace gaccd {

// Writes <folder>/<attempt>/events.out.tfevents.<start>.<host>.gaccd. Each attempt is a run of
// TensorBoard, so that repeated updates are separate curves. A file is a TFRecord of the scalars of
// scalars.h, written atomically. Arguments, errors: see ExportCsv(); kIo for the files.
Status ExportTensorboard(const std::string& run_dir, const std::string& attempt,
                         const std::string& folder, std::vector<std::string>* notes);

}  // namespace gaccd
