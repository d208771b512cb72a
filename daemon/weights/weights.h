// Parameters to and from safetensors files, with the names and shapes of the model's FlatLayout.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "collectives/base/result.h"
#include "daemon/models/network.h"
#include "daemon/telemetry/events.h"
#include "daemon/tensor/flat_layout.h"
#include "daemon/weights/safetensors.h"

namespace gaccd {

// Names allowed to have no counterpart, as patterns: * matches any text, ? any character.
struct WeightRules {
  std::vector<std::string> new_weights;  // parameters that keep their values, even if in the file
  std::vector<std::string> unused;       // tensors of the file without a parameter
};

// The result of loading weights.
struct WeightsReport {
  std::string from;                             // the file
  std::size_t parameters = 0;                   // in the model, without buffers
  std::size_t loaded = 0;                       // number of loaded parameters
  std::size_t buffers = 0;                      // in the model, such as running statistics
  std::size_t loaded_buffers = 0;               // number of loaded buffers
  std::vector<std::string> new_weights;         // not loaded: "classifier.weight [3, 12]"
  std::vector<std::string> unused;              // tensors of the file
  std::map<std::string, std::string> metadata;  // of the file
};
// "weights bert.safetensors: 37 of 39 parameters are loaded; newly initialised: classifier.weight
// [3, 12], classifier.bias [3]; not used: cls.predictions.bias and 6 more"; for models with buffers
// "62 of 62 parameters and 60 of 60 buffers are loaded".
[[nodiscard]] std::string ToText(const WeightsReport& report);
// The same as a record, with all names.
[[nodiscard]] WeightsRecord ToRecord(const WeightsReport& report);

// Parameters from a file; from: its name, for messages. It must contain exactly the parameters,
// with their shapes and finite values, except for differences that `names` and `rules` allow: kData
// otherwise, with the tensors, expected and found shapes. kConfig: a rule that matches nothing.
// Does not change padding.
Result<WeightsReport> AssignParameters(const std::string& from, const SafetensorsFile& file,
                                       const FlatLayout& layout, std::span<float> parameters,
                                       const WeightNames& names = {},
                                       const WeightRules& rules = {});

// Does not write constants. mode, metadata: see WriteSafetensors(); copies: see WeightNames.
Status SaveParameters(const std::string& path, const FlatLayout& layout,
                      std::span<const float> parameters, unsigned mode = 0600,
                      const std::map<std::string, std::string>& metadata = {},
                      const std::map<std::string, std::string>& copies = {});

}  // namespace gaccd
