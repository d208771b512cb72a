// A parsed line of events.jsonl with access by key, for reading many lines. For typed records:
// ReadEvent() in daemon/telemetry/event_text.h. Keys: daemon/telemetry/events.h.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "collectives/base/time.h"

namespace gaccd {

using EventValue = std::variant<std::nullptr_t, bool, std::int64_t, double, std::string_view>;

// Values are stored as text and converted on access, because a run has millions of lines.
class Event {
 public:
  std::string line;     // as in the file, without line break
  std::string attempt;  // name of its folder: "001-8123456"
  std::string name;     // of the event: "step"
  WallTime at;

  // All keys, in the order of the line. Here and below, keys of older versions have their current
  // names. Views are valid until the event changes.
  [[nodiscard]] std::vector<std::pair<std::string_view, EventValue>> Fields() const;
  // nullopt if the line does not have the key.
  [[nodiscard]] std::optional<EventValue> Find(std::string_view key) const;
  // nullopt also for values of another type; Number() accepts integers. Text() returns "".
  [[nodiscard]] std::optional<double> Number(std::string_view key) const;
  [[nodiscard]] std::optional<std::int64_t> Whole(std::string_view key) const;
  // 0 for a negative number, and for none.
  [[nodiscard]] double NotNegative(std::string_view key) const {
    return std::max(0.0, Number(key).value_or(0));
  }
  [[nodiscard]] std::string_view Text(std::string_view key) const;
  // Whether the value is the boolean true.
  [[nodiscard]] bool Is(std::string_view key) const;

 private:
  friend class PlainLineParser;
  friend class JsonLineParser;
  friend bool ParseEvent(std::string_view line, Event* event);

  enum class Kind : std::uint8_t { kNull, kFalse, kTrue, kNumber, kText };
  // Offsets in Source().
  struct Field {
    std::uint32_t key = 0;
    std::uint32_t key_size = 0;
    std::uint32_t value = 0;
    std::uint32_t value_size = 0;
    Kind kind = Kind::kNull;
  };

  [[nodiscard]] std::string_view Source() const {
    return decoded_.empty() ? std::string_view(line) : std::string_view(decoded_);
  }
  [[nodiscard]] std::string_view Key(const Field& field) const;
  [[nodiscard]] EventValue Value(const Field& field) const;
  [[nodiscard]] const Field* FindField(std::string_view key) const;
  [[nodiscard]] const Field* FindExactField(std::string_view key) const;

  std::vector<Field> fields_;
  std::string decoded_;  // keys and values, if JsonLineParser was needed; else empty
};

// Sets everything except `attempt`. false unless the line is a flat JSON object with a time and a
// name, of at most 4 GiB.
[[nodiscard]] bool ParseEvent(std::string_view line, Event* event);

}  // namespace gaccd
