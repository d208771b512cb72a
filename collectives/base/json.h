// JSON values as a tree: for files of other programs and for gaccd's own files.
//
// Texts are UTF-8. Values nested deeper than kMaxDepth are checked for syntax and read as null, so
// that untrusted input cannot exhaust the stack.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace gaccd {

class Json {
 public:
  static constexpr int kMaxDepth = 64;
  struct Null {
    bool operator==(const Null&) const = default;
  };
  using Array = std::vector<Json>;
  using Member = std::pair<std::string, Json>;
  using Object = std::vector<Member>;  // in the order of the text; names may repeat

  Json() = default;  // null
  Json(bool value) : value_(value) {}
  Json(int value) : value_(std::int64_t{value}) {}
  Json(std::int64_t value) : value_(value) {}
  Json(std::uint64_t value) : value_(value) {}
  Json(double value) : value_(value) {}
  Json(std::string value) : value_(std::move(value)) {}
  Json(std::string_view value) : value_(std::string(value)) {}
  Json(const char* value) : value_(std::string(value)) {}
  Json(Array value) : value_(std::move(value)) {}
  Json(Object value) : value_(std::move(value)) {}

  // Empty if `text` is not exactly one JSON value; `error` is then set to the position and the
  // reason.
  [[nodiscard]] static std::optional<Json> Parse(std::string_view text,
                                                 std::string* error = nullptr);

  // Also empty if the value is not an object.
  [[nodiscard]] static std::optional<Json> ParseObject(std::string_view text);

  [[nodiscard]] bool is_null() const { return std::holds_alternative<Null>(value_); }
  // The value if it has this type; null or empty otherwise.
  [[nodiscard]] const std::string* text() const { return std::get_if<std::string>(&value_); }
  [[nodiscard]] const Array* array() const { return std::get_if<Array>(&value_); }
  [[nodiscard]] const Object* object() const { return std::get_if<Object>(&value_); }
  [[nodiscard]] std::optional<bool> boolean() const;
  [[nodiscard]] std::optional<double> number() const;
  template <typename T>  // an integer in the range of T
  [[nodiscard]] std::optional<T> integer() const;

  // The member of an object; of equal names the last. null if there is none.
  [[nodiscard]] const Json* Find(std::string_view name) const;
  [[nodiscard]] const std::string* text(std::string_view name) const;
  [[nodiscard]] std::optional<bool> boolean(std::string_view name) const;
  [[nodiscard]] std::optional<double> number(std::string_view name) const;
  template <typename T>
  [[nodiscard]] std::optional<T> integer(std::string_view name) const;

  // Numbers are compared by value: 1 equals 1.0. The order of members is ignored.
  bool operator==(const Json& other) const;

  // Serializes. Invalid UTF-8 becomes U+FFFD; NaN and infinities become null. With `indent`: one
  // value per line.
  [[nodiscard]] std::string Dump(int indent = -1) const;

 private:
  using Value =
      std::variant<Null, bool, std::int64_t, std::uint64_t, double, std::string, Array, Object>;
  void AppendTo(std::string& out, int indent, int depth) const;

  Value value_;
};

template <typename T>
std::optional<T> Json::integer() const {
  const auto fit = [](auto whole) {
    return std::in_range<T>(whole) ? std::optional(static_cast<T>(whole)) : std::nullopt;
  };
  if (const auto* whole = std::get_if<std::int64_t>(&value_)) return fit(*whole);
  if (const auto* whole = std::get_if<std::uint64_t>(&value_)) return fit(*whole);
  return std::nullopt;
}

template <typename T>
std::optional<T> Json::integer(std::string_view name) const {
  const Json* const member = Find(name);
  return member == nullptr ? std::nullopt : member->integer<T>();
}

// The strings of a list; empty if it is not a list of strings.
[[nodiscard]] std::vector<std::string> TextsIn(const Json& list);

// Whether `text`, if it is JSON, is nested deeper than `depth`.
[[nodiscard]] bool IsNestedDeeper(std::string_view text, int depth);

[[nodiscard]] bool IsUtf8(std::string_view text);
// `text` with U+FFFD in place of invalid UTF-8.
[[nodiscard]] std::string ValidUtf8(std::string_view text);
// `name`, if it is UTF-8, else Printable(), so that different names remain different.
[[nodiscard]] std::string Utf8Name(std::string_view name);

// `text` in quotes: control characters are escaped, invalid UTF-8 becomes U+FFFD.
[[nodiscard]] std::string JsonString(std::string_view text);
// The shortest text that reads back as the same number; 3648 for 3648.0; null for NaN and
// infinities.
[[nodiscard]] std::string JsonNumber(double value);

}  // namespace gaccd
