#include "daemon/rundir/attempt_name.h"

#include <algorithm>
#include <charconv>

#include "collectives/base/strings.h"

namespace gaccd {

std::optional<AttemptName> ParseAttemptName(std::string_view name) {
  constexpr std::size_t kMinDigits = 3;
  constexpr std::size_t kMaxDigits = 9;  // the next number still fits an int
  const std::size_t digits = std::min(name.find('-'), name.size());
  if (digits < kMinDigits || digits > kMaxDigits || digits == name.size()) return std::nullopt;
  AttemptName parsed;
  const auto [end, error] = std::from_chars(name.data(), name.data() + digits, parsed.number);
  if (error != std::errc() || end != name.data() + digits || parsed.number < 0) return std::nullopt;
  parsed.job = name.substr(digits + 1);
  parsed.job.erase(std::min(parsed.job.find('.'), parsed.job.size()));
  if (parsed.job.empty()) return std::nullopt;
  return parsed;
}

std::string FormatAttemptName(int number, std::string_view job) {
  return StrCat(Format("%03d-", number), job);
}

}  // namespace gaccd
