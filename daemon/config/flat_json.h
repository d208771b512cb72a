// One flat line of JSON: what dashboards read. JsonObject writes it and JsonFields reads it back by
// the same calls, so that one function describes a record in both directions:
//   static void VisitFields(auto& fields, auto& save) {
//     fields("step", save.step);
//     fields.Text("reason", save.reason, kMaxMessage);
//   }
//
// Integers stay integers, doubles are the shortest text that reads back the same, NaN and
// infinities are null, enums are their names. Control characters are escaped and bytes that are not
// UTF-8 become U+FFFD, so every result is valid JSON without a line break. Thread-safe.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "collectives/base/json.h"
#include "collectives/base/strings.h"

namespace google::protobuf {
class Message;
}

namespace gaccd {

// Writes one object, key by key: JsonObject out; out("step", 3); out.Finish().
class JsonObject {
 public:
  // REQUIRES: `key` needs no escaping, here and below.
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
  void operator()(std::string_view key, std::span<const std::int64_t> values);
  // Omitted if empty, truncated to `limit` bytes, which become at most 2 * limit when escaped.
  void Text(std::string_view key, std::string_view value, std::size_t limit);
  // Omitted if 0.
  void NotZero(std::string_view key, std::int64_t value) {
    if (value != 0) (*this)(key, value);
  }
  // "3,7"; omitted if empty, truncated like Text().
  void List(std::string_view key, const std::vector<int>& values, std::size_t limit);
  // A value computed from other members; not read back.
  void Computed(std::string_view key, const auto& value) { (*this)(key, value); }
  // Members that are only written if `condition` is true; they are always read.
  void When(bool condition, const auto& visit) {
    if (condition) visit();
  }
  // The members of `group`, if set. When reading: set if the line has `key`.
  template <typename T>
  void Group(std::string_view /*key*/, const std::optional<T>& group, const auto& visit) {
    if (group) visit(*group);
  }
  // When reading: set if the line has one of the keys.
  template <typename T>
  void Group(std::initializer_list<std::string_view> /*keys*/, const std::optional<T>& group,
             const auto& visit) {
    if (group) visit(*group);
  }

  [[nodiscard]] std::string Finish() { return std::move(text_ += '}'); }
  // With a trailing newline.
  [[nodiscard]] std::string FinishLine() { return Finish() + "\n"; }

 private:
  void Key(std::string_view key);
  void Raw(std::string_view key, std::string_view value);

  std::string text_ = "{";
};

// Reads members of an object. A missing or null member keeps its value, except that a null double
// becomes NaN; a member of another type keeps it, too.
class JsonFields {
 public:
  // `object` must outlive it.
  explicit JsonFields(const Json& object) : object_(object) {}

  // Each returns whether it has set `value`.
  bool operator()(std::string_view key, bool& value) {
    return Set(key, object_.boolean(key), value);
  }
  bool operator()(std::string_view key, std::integral auto& value) {
    return Set(key, object_.integer<std::remove_reference_t<decltype(value)>>(key), value);
  }
  bool operator()(std::string_view key, double& value);
  bool operator()(std::string_view key, std::string& value);
  template <typename T>
  void operator()(std::string_view key, std::optional<T>& value) {
    if (!Has(key)) return;
    T parsed{};
    if ((*this)(key, parsed)) value = std::move(parsed);
  }
  void Text(std::string_view key, std::string& value, std::size_t /*limit*/) {
    (*this)(key, value);
  }
  void NotZero(std::string_view key, std::integral auto& value) { (*this)(key, value); }
  // Reads the complete elements: the text may be truncated.
  void List(std::string_view key, std::vector<int>& values, std::size_t limit);
  void Computed(std::string_view /*key*/, const auto& /*value*/) {}
  void When(bool /*condition*/, const auto& visit) { visit(); }
  template <typename T>
  void Group(std::string_view key, std::optional<T>& group, const auto& visit) {
    if (Has(key)) visit(group.emplace());
  }
  template <typename T>
  void Group(std::initializer_list<std::string_view> keys, std::optional<T>& group,
             const auto& visit) {
    const auto has = [this](std::string_view key) { return Has(key); };
    if (std::ranges::any_of(keys, has)) visit(group.emplace());
  }

  // The expected type of the last of these members that is missing, null or of another type. Empty:
  // all were set. Call after reading them.
  [[nodiscard]] std::string FindProblem(std::span<const std::string_view> keys) const;

 private:
  [[nodiscard]] bool Has(std::string_view key) const {
    const Json* const member = object_.Find(key);
    return member != nullptr && !member->is_null();
  }
  template <typename T, typename Parsed>
  bool Set(std::string_view key, const std::optional<Parsed>& parsed, T& value) {
    if (parsed) value = *parsed;
    if (!parsed && Has(key)) problems_.emplace_back(key, Expected<T>());
    return parsed.has_value();
  }
  template <typename T>
  static constexpr std::string_view Expected() {
    if constexpr (std::same_as<T, bool>) return "true or false";
    if constexpr (std::same_as<T, double>) return "a number";
    if constexpr (std::same_as<T, std::string>) return "text";
    return "a whole number";
  }

  const Json& object_;
  std::vector<std::pair<std::string, std::string_view>> problems_;  // expected types, by key
};

// {"mode":"exact","nodes":30}: keys are field names, ordered by field number; unset fields are
// omitted. REQUIRES: scalar fields only; a message or repeated field is printed as null.
void AppendFields(const google::protobuf::Message& message, JsonObject& out);
[[nodiscard]] std::string FlatJson(const google::protobuf::Message& message);

}  // namespace gaccd
