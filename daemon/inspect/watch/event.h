// One line of events.jsonl, read back: key by key, as a reader of many lines needs it. A whole
// record: ReadEvent() in daemon/telemetry/event_text.h. The keys: daemon/telemetry/events.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "daemon/inspect/watch/wall_time.h"

namespace gaccd {

using EventValue = std::variant<std::nullptr_t, bool, std::int64_t, double, std::string_view>;

// A run has millions of lines: values are kept as text, and become numbers when they are read.
class Event {
 public:
  std::string line;     // as in the file, without its break
  std::string attempt;  // the folder's name: "001-8123456"
  std::string name;     // of the event: "step"
  WallTime at;

  // All keys, in the order of the line; a key that older versions wrote under another name has the
  // new one, here and below. Valid until the event changes, as all views below.
  [[nodiscard]] std::vector<std::pair<std::string_view, EventValue>> Fields() const;
  // Nothing when the line has no such key.
  [[nodiscard]] std::optional<EventValue> Find(std::string_view key) const;
  // Nothing also where the value is of another type; a whole number is a number.
  [[nodiscard]] std::optional<double> Number(std::string_view key) const;
  [[nodiscard]] std::optional<std::int64_t> Whole(std::string_view key) const;
  [[nodiscard]] std::string_view Text(std::string_view key) const;
  // Whether the value is true.
  [[nodiscard]] bool Is(std::string_view key) const;

 private:
  friend class PlainLineParser;
  friend class JsonLineParser;
  friend bool ParseEvent(std::string_view line, Event* event);

  enum class Kind : std::uint8_t { kNull, kFalse, kTrue, kNumber, kText };
  // Places in Source().
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
  std::string decoded_;  // keys and values, where the line has escapes; else empty
};

// Fills all but `attempt`. false: the line is no flat object of JSON with a time and a name, or is
// longer than 4 GiB.
[[nodiscard]] bool ParseEvent(std::string_view line, Event* event);

}  // namespace gaccd
