#include "collectives/base/time.h"

#include <array>

namespace gaccd {

std::optional<WallTime> ParseTimestamp(std::string_view text) {
  constexpr std::string_view kForm = "0000-00-00T00:00:00.000000Z";
  if (text.size() != kForm.size()) return std::nullopt;
  std::array<int, 7> parts{};  // year to microseconds
  std::size_t part = 0;
  for (std::size_t i = 0; i < kForm.size(); ++i) {
    if (kForm[i] != '0') {
      if (text[i] != kForm[i]) return std::nullopt;
      ++part;
    } else if (text[i] >= '0' && text[i] <= '9') {
      parts[part] = 10 * parts[part] + (text[i] - '0');
    } else {
      return std::nullopt;
    }
  }
  const auto [year, month, day, hour, minute, second, micros] = parts;
  // 63 bits of nanoseconds since 1970 end in the year 2262.
  if (year < 1970 || year > 2261) return std::nullopt;
  const auto date = std::chrono::year(year) / month / day;
  if (!date.ok() || hour > 23 || minute > 59 || second > 60) return std::nullopt;
  return WallTime(std::chrono::sys_days(date)) + std::chrono::hours(hour) +
         std::chrono::minutes(minute) + std::chrono::seconds(second) +
         std::chrono::microseconds(micros);
}

}  // namespace gaccd
