// Parameters to and from safetensors files, under the names and shapes of the model's FlatLayout.
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

// What may have no counterpart, by name: * matches any text, ? any character.
struct WeightRules {
  std::vector<std::string> fresh;   // parameters that keep their values, whatever the file holds
  std::vector<std::string> unused;  // tensors of the file that are for no parameter
};

// What was taken from where, and what was not.
struct WeightsReport {
  std::string from;                             // the file
  std::size_t parameters = 0;                   // of the model, without buffers
  std::size_t loaded = 0;                       // of these
  std::size_t buffers = 0;                      // of the model, as running statistics
  std::size_t loaded_buffers = 0;               // of these
  std::vector<std::string> fresh;               // of both, "classifier.weight [3, 12]"
  std::vector<std::string> unused;              // tensors of the file
  std::map<std::string, std::string> metadata;  // of the file
};
// "weights bert.safetensors: 37 of 39 parameters are loaded; newly initialised: classifier.weight
// [3, 12], classifier.bias [3]; not used: cls.predictions.bias and 6 more"; of a model with buffers
// "62 of 62 parameters and 60 of 60 buffers are loaded".
[[nodiscard]] std::string ToText(const WeightsReport& report);
// The same for programs: with all names.
[[nodiscard]] WeightsRecord RecordOf(const WeightsReport& report);

// Every parameter must be in the file with its shape, and nothing else, but for what `names` knows
// and `rules` allow: kData otherwise, with all tensors that do not fit, the expected and the found
// shapes; values must be finite. kConfig: a rule that matches nothing. Padding is left alone.
Result<WeightsReport> LoadParameters(const std::string& path, const FlatLayout& layout,
                                     std::span<float> parameters, const WeightNames& names = {},
                                     const WeightRules& rules = {});
// The same of a file that was read. from: its name, for messages.
Result<WeightsReport> TakeParameters(const std::string& from, const SafetensorsFile& file,
                                     const FlatLayout& layout, std::span<float> parameters,
                                     const WeightNames& names = {}, const WeightRules& rules = {});

// Without constants. `mode` is the file's, before the umask; metadata: of WriteSafetensors();
// copies: WeightNames.
Status SaveParameters(const std::string& path, const FlatLayout& layout,
                      std::span<const float> parameters, unsigned mode = 0600,
                      const std::map<std::string, std::string>& metadata = {},
                      const std::map<std::string, std::string>& copies = {});

}  // namespace gaccd
