// What a run does when something is wrong that it could survive: choices of the user (flags).
#pragma once

#include <cstdint>
#include <string_view>

namespace gaccd {

// A loss or gradient that is not finite.
enum class OnNonfinite : std::uint8_t {
  kStop,            // training failed: exit 93
  kSkipUpdate,      // the optimiser does not step; the next update goes on
  kDropMicroBatch,  // left out before it is accumulated; the divisor counts the survivors
};
[[nodiscard]] std::string_view Name(OnNonfinite policy);  // "stop", "skip-update", ...

// A record of the data set that cannot be read or used.
enum class OnBadRecord : std::uint8_t {
  kStop,  // exit 65
  kSkip,  // another record takes its place, up to --bad-record-quota of them; in evaluation data it
          // is left out
};
[[nodiscard]] std::string_view Name(OnBadRecord policy);  // "stop", "skip"

}  // namespace gaccd
