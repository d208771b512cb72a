// Numbers as people read them. Pure; thread-safe.
#pragma once

#include <cstdint>
#include <string>

namespace gaccd {

[[nodiscard]] std::string FormatCount(std::int64_t count);    // "1,228,800"
[[nodiscard]] std::string FormatNumber(double value);         // "2.314", "0.0003", "1.2e+09"
[[nodiscard]] std::string FormatFixed(double value);          // "1.07"
[[nodiscard]] std::string FormatSeconds(double seconds);      // "842 ms", "12.1 s", "2:03:04"
[[nodiscard]] std::string FormatLongTime(double seconds);     // "2:03:04", "12 d"
[[nodiscard]] std::string FormatBytes(double bytes);          // "1.25 GB", of 10^9 bytes
[[nodiscard]] std::string FormatPercent(double share);        // 0.1234: "12.3 %"
[[nodiscard]] std::string FormatSignedPercent(double share);  // 0.5625: "+56.3 %"; 0: "0 %"

}  // namespace gaccd
