#include "daemon/model/safetensors_header.h"

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <utility>

#include "collectives/base/strings.h"

namespace gaccd {
namespace {

constexpr std::string_view kMetadata = "__metadata__";
constexpr std::size_t kMaxRank = 64;
constexpr std::size_t kMaxShown = 40;  // bytes of foreign text in a message

std::string Printable(std::string_view text) {
  std::string printable(text.substr(0, kMaxShown));
  std::replace_if(
      printable.begin(), printable.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return printable;
}

void AppendUtf8(std::uint32_t code, std::string& out) {
  const auto add = [&](std::uint32_t byte) { out += static_cast<char>(byte); };
  if (code < 0x80) {
    add(code);
  } else if (code < 0x800) {
    add(0xC0 | (code >> 6));
    add(0x80 | (code & 63));
  } else if (code < 0x10000) {
    add(0xE0 | (code >> 12));
    add(0x80 | ((code >> 6) & 63));
    add(0x80 | (code & 63));
  } else {
    add(0xF0 | (code >> 18));
    add(0x80 | ((code >> 12) & 63));
    add(0x80 | ((code >> 6) & 63));
    add(0x80 | (code & 63));
  }
}

// Reads the header from left to right. After the first failure nothing moves any more, so callers
// need to look at ok() only where they loop or use a value.
class HeaderParser {
 public:
  explicit HeaderParser(std::string_view text) : text_(text) {}

  Result<SafetensorsHeader> Parse() {
    SafetensorsHeader header;
    if (text_.empty() || text_[0] != '{') Fail("'{'");
    std::set<std::string> keys;
    ParseObject([&](std::string key) {
      if (!keys.insert(key).second) Fail(StrCat("a new name, not '", Printable(key), "' again,"));
      if (key == kMetadata) {
        ParseMetadata(header.metadata);
      } else {
        header.entries.push_back(ParseEntry(std::move(key)));
      }
    });
    while (ok() && at_ < text_.size()) {
      if (text_[at_] != ' ') Fail("only spaces");
      ++at_;
    }
    if (!ok()) return Status(ErrorKind::kData, failure_);
    return header;
  }

 private:
  [[nodiscard]] bool ok() const { return failure_.empty(); }

  void Fail(std::string_view expected) {
    if (!ok()) return;
    const std::string rest = Printable(text_.substr(at_));
    failure_ = StrCat("expected ", expected, " at byte ", at_, " of the header, found ",
                      rest.empty() ? "its end" : StrCat("\"", rest, "\""));
  }

  // Whether the next character that is not white space is `c`.
  bool Peek(char c) {
    constexpr std::string_view kSpace = " \t\r\n";
    while (at_ < text_.size() && kSpace.find(text_[at_]) != std::string_view::npos) ++at_;
    return ok() && at_ < text_.size() && text_[at_] == c;
  }

  void Take(char c) {
    if (Peek(c)) {
      ++at_;
    } else {
      Fail(StrCat("'", c, "'"));
    }
  }

  // Calls value(key) where the value of each key stands.
  template <typename ParseValue>
  void ParseObject(ParseValue value) {
    Take('{');
    for (bool first = true; ok() && !Peek('}'); first = false) {
      if (!first) Take(',');
      std::string key = ParseString();
      Take(':');
      if (ok()) value(std::move(key));
    }
    Take('}');
  }

  void ParseMetadata(std::map<std::string, std::string>& metadata) {
    ParseObject([&](std::string key) {
      std::string value = ParseString();
      if (!metadata.emplace(std::move(key), std::move(value)).second) Fail("a key only once");
    });
  }

  SafetensorsEntry ParseEntry(std::string name) {
    constexpr std::array<std::string_view, 3> kFields = {"dtype", "shape", "data_offsets"};
    SafetensorsEntry entry;
    entry.name = std::move(name);
    std::array<bool, kFields.size()> seen{};
    ParseObject([&](const std::string& key) {
      const auto found = std::find(kFields.begin(), kFields.end(), key);
      const auto field = static_cast<std::size_t>(found - kFields.begin());
      if (found == kFields.end() || std::exchange(seen[field], true)) {
        Fail("\"dtype\", \"shape\" and \"data_offsets\", each once,");
        return;
      }
      if (field == 0) entry.dtype = ParseString();
      if (field == 1) entry.shape = ParseNumbers(kMaxRank);
      if (field == 2) SetOffsets(ParseNumbers(2), entry);
    });
    for (std::size_t i = 0; i < seen.size(); ++i) {
      if (!seen[i]) Fail(StrCat("\"", kFields[i], "\" of '", Printable(entry.name), "' before"));
    }
    return entry;
  }

  void SetOffsets(const std::vector<std::int64_t>& numbers, SafetensorsEntry& entry) {
    if (numbers.size() != 2) {
      Fail("two data_offsets before");
      return;
    }
    entry.begin = numbers[0];
    entry.end = numbers[1];
  }

  std::vector<std::int64_t> ParseNumbers(std::size_t most) {
    std::vector<std::int64_t> numbers;
    Take('[');
    while (ok() && !Peek(']')) {
      if (!numbers.empty()) Take(',');
      if (numbers.size() == most) Fail(StrCat("at most ", most, " numbers"));
      numbers.push_back(ParseNumber());
    }
    Take(']');
    return numbers;
  }

  // A whole number, as JSON writes it: no sign, no leading zero, no fraction.
  std::int64_t ParseNumber() {
    (void)Peek('0');  // skips white space
    const std::size_t start = at_;
    std::int64_t value = 0;
    while (ok() && at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') {
      if (__builtin_mul_overflow(value, 10, &value) ||
          __builtin_add_overflow(value, text_[at_] - '0', &value) ||
          (at_ > start && text_[start] == '0')) {
        at_ = start;
        Fail("a whole number that fits 63 bits");
        return 0;
      }
      ++at_;
    }
    if (at_ == start) Fail("a whole number of at least 0");
    return value;
  }

  std::string ParseString() {
    std::string value;
    const std::size_t start = at_;
    Take('"');
    while (ok() && at_ < text_.size() && text_[at_] != '"') {
      if (static_cast<unsigned char>(text_[at_]) < ' ') Fail("text without control characters");
      if (text_[at_] == '\\') {
        ParseEscape(value);
      } else {
        value += text_[at_++];
      }
    }
    Take('"');
    if (ok() && !IsUtf8(value)) {
      at_ = start;
      Fail("UTF-8 text");
    }
    return value;
  }

  void ParseEscape(std::string& value) {
    constexpr std::string_view kLetters = "\"\\/bfnrt";
    constexpr std::string_view kMeanings = "\"\\/\b\f\n\r\t";
    ++at_;  // the backslash
    const char letter = at_ < text_.size() ? text_[at_] : '\0';
    if (letter == 'u') {
      ParseUnicode(value);
      return;
    }
    const std::size_t which = kLetters.find(letter);
    if (which == std::string_view::npos) {
      Fail("an escape of JSON");
      return;
    }
    value += kMeanings[which];
    ++at_;
  }

  // \uXXXX, or two of them for a character beyond 16 bits (a surrogate pair).
  void ParseUnicode(std::string& value) {
    std::uint32_t code = ParseHex();
    if (code >= 0xD800 && code < 0xDC00 && text_.substr(at_, 2) == "\\u") {
      ++at_;
      const std::uint32_t low = ParseHex();
      if (low < 0xDC00 || low > 0xDFFF) {
        Fail("the second half of a surrogate pair before");
        return;
      }
      code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    }
    AppendUtf8(code, value);  // half a pair is no UTF-8 and is refused as such
  }

  // The four digits after a 'u'.
  std::uint32_t ParseHex() {
    ++at_;  // the 'u'
    std::uint32_t code = 0;
    for (int i = 0; i < 4; ++i) {
      constexpr std::string_view kDigits = "0123456789abcdef0123456789ABCDEF";
      const std::size_t digit = at_ < text_.size() ? kDigits.find(text_[at_]) : kDigits.npos;
      if (digit == std::string_view::npos) {
        Fail("four hexadecimal digits");
        return 0;
      }
      code = code * 16 + static_cast<std::uint32_t>(digit % 16);
      ++at_;
    }
    return code;
  }

  std::string_view text_;
  std::size_t at_ = 0;
  std::string failure_;
};

std::string Quoted(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (static_cast<unsigned char>(c) < ' ') {
      quoted += "\\u00";
      quoted += kDigits[static_cast<std::size_t>(c) / 16];
      quoted += kDigits[static_cast<std::size_t>(c) % 16];
    } else {
      quoted += c;
    }
  }
  return quoted + '"';
}

}  // namespace

// The table of well-formed sequences of the Unicode standard (3.9, table 3-7).
bool IsUtf8(std::string_view text) {
  const auto byte = [&](std::size_t i) -> unsigned {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U;
  };
  const auto in = [](unsigned value, unsigned low, unsigned high) {
    return value >= low && value <= high;
  };
  for (std::size_t i = 0; i < text.size();) {
    const unsigned first = byte(i);
    std::size_t length = 1;
    unsigned low = 0x80;
    unsigned high = 0xBF;
    if (first < 0x80) {
      ++i;
      continue;
    }
    if (in(first, 0xC2, 0xDF)) {
      length = 2;
    } else if (in(first, 0xE0, 0xEF)) {
      length = 3;
      if (first == 0xE0) low = 0xA0;   // no longer than needed
      if (first == 0xED) high = 0x9F;  // no surrogates
    } else if (in(first, 0xF0, 0xF4)) {
      length = 4;
      if (first == 0xF0) low = 0x90;
      if (first == 0xF4) high = 0x8F;  // nothing beyond U+10FFFF
    } else {
      return false;
    }
    if (!in(byte(i + 1), low, high)) return false;
    for (std::size_t k = 2; k < length; ++k) {
      if (!in(byte(i + k), 0x80, 0xBF)) return false;
    }
    i += length;
  }
  return true;
}

Result<SafetensorsHeader> ParseSafetensorsHeader(std::string_view text) {
  return HeaderParser(text).Parse();
}

std::string SafetensorsHeaderText(const SafetensorsHeader& header) {
  std::string text = "{";
  const auto key = [&](std::string_view name) {
    if (text.back() != '{') text += ',';
    text += Quoted(name) + ':';
  };
  if (!header.metadata.empty()) {
    key(kMetadata);
    text += '{';
    for (const auto& [name, value] : header.metadata) {
      key(name);
      text += Quoted(value);
    }
    text += '}';
  }
  for (const SafetensorsEntry& entry : header.entries) {
    key(entry.name);
    text += "{\"dtype\":" + Quoted(entry.dtype) + ",\"shape\":[";
    for (std::size_t i = 0; i < entry.shape.size(); ++i) {
      if (i > 0) text += ',';
      text += std::to_string(entry.shape[i]);
    }
    text += StrCat("],\"data_offsets\":[", entry.begin, ",", entry.end, "]}");
  }
  text += '}';
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

}  // namespace gaccd
