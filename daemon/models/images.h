// The images that a network classifies.
#pragma once

#include "daemon/nn/recorder.h"

namespace gaccd {

// The input "features" as images [samples, channels, height, width]: grey ones may lack the
// channels, and square ones may be vectors.
ValueId RecordImages(nn::Recorder& recorder, std::int64_t channels);

}  // namespace gaccd
