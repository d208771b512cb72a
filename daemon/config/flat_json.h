// One flat line of JSON: what dashboards read.
//
// Integers stay integers, doubles are the shortest text that reads back the same, NaN and
// infinities are null, enums are their names. Control characters are escaped and bytes that are not
// UTF-8 become U+FFFD, so every result is valid JSON without a line break. Thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "collectives/base/json.h"

namespace google::protobuf {
class Message;
}

namespace gaccd {

// Writes one object, key by key: JsonObject out; out("step", 3); out.Take().
class JsonObject {
 public:
  // REQUIRES: `key` needs no escape, here and below.
  void operator()(std::string_view key, bool value) { Raw(key, value ? "true" : "false"); }
  void operator()(std::string_view key, int value) { (*this)(key, std::int64_t{value}); }
  void operator()(std::string_view key, std::int64_t value);
  void operator()(std::string_view key, std::uint64_t value);
  void operator()(std::string_view key, double value);
  void operator()(std::string_view key, std::string_view value);
  void operator()(std::string_view key, const char* value) {
    (*this)(key, std::string_view(value));
  }
  template <typename T>
  void operator()(std::string_view key, const std::optional<T>& value) {
    if (value) (*this)(key, *value);
  }
  // Left out when it is empty, and cut: at most `limit` bytes, and 2 * limit once escaped.
  void Text(std::string_view key, std::string_view value, std::size_t limit);
  // Left out when it is 0.
  void NotZero(std::string_view key, std::int64_t value) {
    if (value != 0) (*this)(key, value);
  }

  [[nodiscard]] std::string Take() { return std::move(text_ += '}'); }
  // With a newline at its end.
  [[nodiscard]] std::string TakeLine() { return Take() + "\n"; }

 private:
  void Key(std::string_view key);
  void Raw(std::string_view key, std::string_view value);

  std::string text_ = "{";
};

// {"mode":"exact","nodes":30}: keys are field names, in the order of the field numbers; unset
// fields are left out. REQUIRES: scalar fields only; a message or repeated field is printed as
// null.
void AppendFields(const google::protobuf::Message& message, JsonObject& out);
[[nodiscard]] std::string FlatJson(const google::protobuf::Message& message);

}  // namespace gaccd
