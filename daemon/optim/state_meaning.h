// What gives the values of an optimiser's state their meaning: they are of no use to another one.
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
