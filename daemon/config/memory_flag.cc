#include "daemon/config/memory_flag.h"

#include <algorithm>
#include <charconv>

#include "collectives/base/strings.h"

namespace gaccd {
namespace {

struct Unit {
  std::string_view name;
  double bytes;
};
constexpr Unit kUnits[] = {{"B", 1},        {"kB", 1e3},    {"KB", 1e3},     {"MB", 1e6},
                           {"GB", 1e9},     {"TB", 1e12},   {"KiB", 0x1p10}, {"MiB", 0x1p20},
                           {"GiB", 0x1p30}, {"TiB", 0x1p40}};

Status WrongMemory(std::string_view text) {
  return {
      ErrorKind::kUsage,
      StrCat("expected a size with its unit, as 80GB (10^9) or 75GiB (2^30), found '", text, "'")};
}

}  // namespace

Result<std::int64_t> ParseMemory(std::string_view text) {
  double number = 0;
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, number, std::chars_format::fixed);
  if (error != std::errc()) return WrongMemory(text);
  std::string_view name(end, last);
  if (name.starts_with(' ')) name.remove_prefix(1);
  const auto* const unit = std::ranges::find(kUnits, name, &Unit::name);
  if (unit == std::end(kUnits)) return WrongMemory(text);
  const double bytes = number * unit->bytes;
  if (!(bytes >= 1 && bytes < 0x1p63)) return WrongMemory(text);
  return static_cast<std::int64_t>(bytes);
}

}  // namespace gaccd
