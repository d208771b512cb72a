// The input images of networks.
#pragma once

#include "daemon/nn/recorder.h"

namespace gaccd {

// The input "features" as images [samples, channels, height, width]. Grey images may have no
// channel dimension, and square images may be vectors.
ValueId RecordImages(nn::Recorder& recorder, std::int64_t channels);

}  // namespace gaccd
