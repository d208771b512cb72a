// Parameters to and from safetensors files, under the names and shapes of the model's FlatLayout.
#pragma once

#include <span>
#include <string>

#include "collectives/base/result.h"
#include "daemon/models/network.h"
#include "daemon/tensor/flat_layout.h"

namespace gaccd {

// Every parameter must be in the file with its shape, and nothing else but what `names` knows:
// kData otherwise, naming the tensor, the expected and the found shape; values must be finite.
// Padding is left alone.
Status LoadParameters(const std::string& path, const FlatLayout& layout,
                      std::span<float> parameters, const WeightNames& names = {});

// `mode` is the file's, before the umask.
Status SaveParameters(const std::string& path, const FlatLayout& layout,
                      std::span<const float> parameters, unsigned mode = 0600);

}  // namespace gaccd
