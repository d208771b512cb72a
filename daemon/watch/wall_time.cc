#include "daemon/watch/wall_time.h"

#include <cstdio>
#include <ctime>
#include <string>

namespace gaccd {

std::optional<WallTime> ParseTimestamp(std::string_view text) {
  const std::string copy(text);
  std::tm parts{};
  int micros = 0;
  int end = 0;
  const int found =
      std::sscanf(copy.c_str(), "%4d-%2d-%2dT%2d:%2d:%2d.%6dZ%n", &parts.tm_year, &parts.tm_mon,
                  &parts.tm_mday, &parts.tm_hour, &parts.tm_min, &parts.tm_sec, &micros, &end);
  if (found != 7 || static_cast<std::size_t>(end) != copy.size()) return std::nullopt;
  // Nanoseconds since 1970 in 63 bits end in the year 2262.
  if (parts.tm_year < 1970 || parts.tm_year > 2261) return std::nullopt;
  parts.tm_year -= 1900;
  parts.tm_mon -= 1;
  return WallTime(std::chrono::seconds(timegm(&parts)) + std::chrono::microseconds(micros));
}

}  // namespace gaccd
