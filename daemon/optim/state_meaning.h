// The settings that define an optimiser's state: another one cannot use its values.
#pragma once

#include <string_view>
#include <utility>
#include <vector>

namespace gaccd {

using StateSettings = std::vector<std::pair<std::string_view, double>>;  // {"beta1", 0.9}, ...

struct StateMeaning {
  std::string_view optimizer;  // "adamw"
  StateSettings settings;

  friend bool operator==(const StateMeaning&, const StateMeaning&) = default;
};

}  // namespace gaccd
