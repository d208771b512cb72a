// One flat line of JSON: what dashboards read.
//
// Integers stay integers, doubles are the shortest text that reads back the same, NaN and
// infinities are null, enums are their names. Control characters are escaped and bytes that are not
// UTF-8 become U+FFFD, so every result is valid JSON without a line break. Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

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

// Reads one object: its members that are texts, numbers or booleans. Others (null, objects, lists)
// are checked for syntax and left out, however deep they are. Of equal names the last one counts.
class JsonMembers {
 public:
  using Value = std::variant<bool, std::int64_t, std::uint64_t, double, std::string>;

  // Nothing where `text` is not exactly one JSON object.
  [[nodiscard]] static std::optional<JsonMembers> Parse(std::string_view text);

  [[nodiscard]] bool contains(std::string_view name) const { return values_.contains(name); }
  // Each of these: nothing where there is no such member, or one of another type.
  [[nodiscard]] const std::string* text(std::string_view name) const;
  [[nodiscard]] std::optional<bool> boolean(std::string_view name) const;
  [[nodiscard]] std::optional<double> number(std::string_view name) const;
  template <typename T>  // a whole number that T can hold
  [[nodiscard]] std::optional<T> integer(std::string_view name) const;

  [[nodiscard]] const std::map<std::string, Value, std::less<>>& values() const { return values_; }

 private:
  [[nodiscard]] const Value* Find(std::string_view name) const;

  std::map<std::string, Value, std::less<>> values_;
};

template <typename T>
std::optional<T> JsonMembers::integer(std::string_view name) const {
  const Value* value = Find(name);
  if (value == nullptr) return std::nullopt;
  const auto fit = [](auto whole) {
    return std::in_range<T>(whole) ? std::optional(static_cast<T>(whole)) : std::nullopt;
  };
  if (const auto* whole = std::get_if<std::int64_t>(value)) return fit(*whole);
  if (const auto* whole = std::get_if<std::uint64_t>(value)) return fit(*whole);
  return std::nullopt;
}

// {"mode":"exact","nodes":30}: keys are field names, in the order of the field numbers; unset
// fields are left out. REQUIRES: scalar fields only; a message or repeated field is printed as
// null.
void AppendFields(const google::protobuf::Message& message, JsonObject& out);
[[nodiscard]] std::string FlatJson(const google::protobuf::Message& message);

// Whether `text`, where it is JSON, is nested deeper. For a text from outside: the parser of
// nlohmann takes any depth, but copies, comparisons and dump() call themselves for each level.
[[nodiscard]] bool IsNestedDeeper(std::string_view text, int most);

// `text` with U+FFFD for bytes that are not UTF-8.
[[nodiscard]] std::string ValidUtf8(std::string_view text);

// The text in quotes, escaped as above.
[[nodiscard]] std::string JsonString(std::string_view text);

}  // namespace gaccd
