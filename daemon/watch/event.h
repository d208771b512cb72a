// One line of events.jsonl, read back. The keys: daemon/telemetry/event_text.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "daemon/watch/wall_time.h"

namespace gaccd {

using EventValue = std::variant<std::nullptr_t, bool, std::int64_t, double, std::string>;

struct Event {
  std::string line;     // as it stands in the file, without its break
  std::string attempt;  // the folder's name: "001-8123456"
  std::string name;     // of the event: "step"
  WallTime at;
  // All keys, in the order of the line.
  std::vector<std::pair<std::string, EventValue>> fields;

  // Null when the line has no such key.
  [[nodiscard]] const EventValue* Find(std::string_view key) const;
  // Nothing also where the value is of another type; a whole number is a number.
  [[nodiscard]] std::optional<double> Number(std::string_view key) const;
  [[nodiscard]] std::optional<std::int64_t> Whole(std::string_view key) const;
  [[nodiscard]] std::string_view Text(std::string_view key) const;
  // Whether the value is true.
  [[nodiscard]] bool Is(std::string_view key) const;
};

// Fills all but `attempt`. false: the line is no flat object of JSON with a time and a name.
[[nodiscard]] bool ParseEvent(std::string_view line, Event* event);

}  // namespace gaccd
