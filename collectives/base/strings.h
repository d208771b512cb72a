// Text for messages, and numbers as text. Thread-safe; allocates, so not for inner loops.
#pragma once

#include <array>
#include <charconv>
#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <vector>

namespace gaccd {

// `value`; every NaN without a sign, so that it is printed as "nan", never "-nan".
template <typename T>
[[nodiscard]] const T& WithoutNanSign(const T& value) {
  if constexpr (std::is_floating_point_v<T>) {
    static const T kNan = std::numeric_limits<T>::quiet_NaN();
    if (value != value) return kNan;
  }
  return value;
}

// Prints a value by operator<<, NaN as "nan". StrCat puts its arguments in a list of these: with a
// stream in StrCat itself, each combination of argument types would be one more function.
class Printed {
 public:
  explicit Printed(const char* text) : value_(text), print_(&PrintText) {}
  template <typename T>
  explicit Printed(const T& value) : value_(&value), print_(&PrintValue<T>) {}

  friend std::ostream& operator<<(std::ostream& out, const Printed& printed) {
    printed.print_(out, printed.value_);
    return out;
  }

 private:
  static void PrintText(std::ostream& out, const void* text) {
    out << static_cast<const char*>(text);
  }
  template <typename T>
  static void PrintValue(std::ostream& out, const void* value) {
    out << WithoutNanSign(*static_cast<const T*>(value));
  }

  const void* value_;
  void (*print_)(std::ostream& out, const void* value);
};

[[nodiscard]] std::string Concatenate(std::initializer_list<Printed> values);

// Concatenates the arguments, each printed by operator<<, NaN as "nan".
template <typename... Args>
[[nodiscard, gnu::always_inline]] inline std::string StrCat(const Args&... args) {
  return Concatenate({Printed(args)...});
}

// printf(3), for numbers with a width or precision; at most 255 bytes.
[[nodiscard, gnu::format(printf, 1, 2)]] std::string Format(const char* format, ...);

// "1 node", "30 nodes".
[[nodiscard]] std::string Counted(std::integral auto count, std::string_view what) {
  return StrCat(count, " ", what, count == 1 ? "" : "s");
}

// The parts between separators; an empty last part is omitted, as after the last newline.
[[nodiscard]] std::vector<std::string> Split(std::string_view text, char separator);

// Whether `part` is one of the parts of a list like "a,b".
[[nodiscard]] bool HasPart(std::string_view list, std::string_view part, char separator = ',');

// "a, b, c", each printed by operator<<.
template <typename List>
[[nodiscard]] std::string Join(const List& parts, std::string_view separator) {
  std::string text;
  std::string_view before;
  for (const auto& part : parts) {
    text += StrCat(before, part);
    before = separator;
  }
  return text;
}

// Removes the byte order mark, which Windows programs write at the start of UTF-8 files.
[[nodiscard]] inline std::string_view WithoutByteOrderMark(std::string_view text) {
  return text.substr(text.starts_with("\xEF\xBB\xBF") ? 3 : 0);
}

// "79.2 MB", of 10^6 bytes; "0.8 kB" below 0.1 MB.
[[nodiscard]] std::string Megabytes(std::int64_t bytes);

inline constexpr std::size_t kMaxPrintable = 16'384;  // bytes

// `text` made safe for logs and terminals: names or paths in it cannot start a new log line, move
// the cursor or hide text. Lines after the first are indented, control characters and invalid UTF-8
// are shown as \x1b, and text longer than kMaxPrintable is truncated.
[[nodiscard]] std::string Printable(std::string_view text);
// The same with spaces instead of newlines.
[[nodiscard]] std::string PrintableLine(std::string_view text);

// Numbers as text: exact, and independent of the locale.

// The complete text as a decimal number. Empty for anything else, also for spaces, a plus sign or a
// number that does not fit T.
template <typename T>
[[nodiscard]] std::optional<T> ToNumber(std::string_view text) {
  T value{};
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, value);
  if (error != std::errc() || end != last) return std::nullopt;
  return value;
}

// As ToNumber() in [0, 2^63), without any sign.
[[nodiscard]] inline std::optional<std::int64_t> ToCount(std::string_view text) {
  return text.starts_with('-') ? std::nullopt : ToNumber<std::int64_t>(text);
}

// The shortest text that parses to the same value; "inf", "-inf", "nan".
template <typename T>
[[nodiscard]] std::string NumberText(T value) {
  std::array<char, 32> text{};  // a double has at most 24 characters
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr};
}

}  // namespace gaccd
