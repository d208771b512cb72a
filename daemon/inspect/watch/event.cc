#include "daemon/inspect/watch/event.h"

#include <array>
#include <charconv>
#include <cstdlib>
#include <limits>

#include "collectives/base/json.h"
#include "collectives/base/strings.h"

namespace gaccd {

// Parses lines as written by gaccd: ASCII without blanks and escapes. About ten times as fast as
// JsonLineParser, with the same result.
class PlainLineParser {
 public:
  PlainLineParser(std::string_view line, std::vector<Event::Field>* fields)
      : line_(line), fields_(*fields) {}

  // false: needs JsonLineParser.
  bool Parse() {
    if (!Skip('{')) return false;
    do {
      Event::Field& field = fields_.emplace_back();
      if (!Quoted(&field.key, &field.key_size) || !Skip(':') || !Value(&field)) return false;
    } while (Skip(','));
    return Skip('}') && at_ == line_.size();
  }

 private:
  [[nodiscard]] char Now() const { return at_ < line_.size() ? line_[at_] : '\0'; }
  bool Skip(char c) {
    if (Now() != c) return false;
    ++at_;
    return true;
  }
  bool Skip(std::string_view word) {
    if (!line_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }
  std::size_t Digits() {
    const std::size_t begin = at_;
    while (Now() >= '0' && Now() <= '9') ++at_;
    return at_ - begin;
  }

  bool Quoted(std::uint32_t* begin, std::uint32_t* size) {
    if (!Skip('"')) return false;
    *begin = static_cast<std::uint32_t>(at_);
    while (at_ < line_.size() && line_[at_] >= ' ' && line_[at_] <= '~' && line_[at_] != '"' &&
           line_[at_] != '\\') {
      ++at_;
    }
    *size = static_cast<std::uint32_t>(at_) - *begin;
    return Skip('"');
  }

  bool Value(Event::Field* field) {
    if (Now() == '"') {
      field->kind = Event::Kind::kText;
      return Quoted(&field->value, &field->value_size);
    }
    field->value = static_cast<std::uint32_t>(at_);
    field->kind = Skip("null")    ? Event::Kind::kNull
                  : Skip("true")  ? Event::Kind::kTrue
                  : Skip("false") ? Event::Kind::kFalse
                                  : Event::Kind::kNumber;
    if (field->kind == Event::Kind::kNumber && !Number()) return false;
    field->value_size = static_cast<std::uint32_t>(at_) - field->value;
    return true;
  }

  // Only numbers that are certainly finite.
  bool Number() {
    constexpr std::size_t kMaxDigits = 100;
    constexpr std::size_t kMaxExponent = 2;
    Skip('-');
    const std::size_t begin = at_;
    const bool zero = Now() == '0';
    const std::size_t digits = Digits();
    if (digits == 0 || (zero && digits > 1)) return false;
    if (Skip('.') && Digits() == 0) return false;
    if (at_ - begin > kMaxDigits) return false;
    if (!Skip('e') && !Skip('E')) return true;
    if (!Skip('-')) Skip('+');
    const std::size_t exponent = Digits();
    return exponent > 0 && exponent <= kMaxExponent;
  }

  std::string_view line_;
  std::vector<Event::Field>& fields_;
  std::size_t at_ = 0;
};

// Parses any line; stores keys and values in `decoded`.
class JsonLineParser {
 public:
  JsonLineParser(std::vector<Event::Field>* fields, std::string* decoded)
      : fields_(*fields), decoded_(*decoded) {}

  bool Parse(std::string_view line) {
    const auto json = Json::ParseObject(line);
    return json && std::ranges::all_of(*json->object(), [this](const Json::Member& member) {
             Event::Field& field = fields_.emplace_back();
             Append(member.first, &field.key, &field.key_size);
             return Value(member.second, &field);
           });
  }

 private:
  bool Value(const Json& value, Event::Field* field) {
    std::string text;
    if (value.text() != nullptr) {
      field->kind = Event::Kind::kText;
      text = *value.text();
    } else if (value.number()) {
      field->kind = Event::Kind::kNumber;
      text = value.Dump();
    } else if (value.boolean()) {
      field->kind = *value.boolean() ? Event::Kind::kTrue : Event::Kind::kFalse;
    } else {
      field->kind = Event::Kind::kNull;
    }
    Append(text, &field->value, &field->value_size);
    return value.array() == nullptr && value.object() == nullptr;
  }
  void Append(std::string_view text, std::uint32_t* begin, std::uint32_t* size) {
    *begin = static_cast<std::uint32_t>(decoded_.size());
    *size = static_cast<std::uint32_t>(text.size());
    decoded_ += text;
  }

  std::vector<Event::Field>& fields_;
  std::string& decoded_;
};

namespace {

// Keys renamed since older versions of gaccd.
struct RenamedKey {
  std::string_view old_name;
  std::string_view name;
};
constexpr std::array<RenamedKey, 2> kRenamedKeys{
    {{"eff_batch", "effective_batch"}, {"passed_over", "skipped_checkpoints"}}};

// Converts a JSON number: an integer if written as one that fits, else a double.
EventValue ParseNumber(std::string_view text) {
  if (const auto whole = ToNumber<std::int64_t>(text)) return *whole;
  double value = 0;
  const auto as_real = std::from_chars(text.data(), text.data() + text.size(), value);
  if (as_real.ec == std::errc()) return value;
  return std::strtod(std::string(text).c_str(), nullptr);  // too small for from_chars
}

}  // namespace

std::string_view Event::Key(const Field& field) const {
  const std::string_view key = Source().substr(field.key, field.key_size);
  const auto* const renamed = std::ranges::find(kRenamedKeys, key, &RenamedKey::old_name);
  return renamed == kRenamedKeys.end() ? key : renamed->name;
}

EventValue Event::Value(const Field& field) const {
  const std::string_view text = Source().substr(field.value, field.value_size);
  switch (field.kind) {
    case Kind::kNull:
      return nullptr;
    case Kind::kFalse:
      return false;
    case Kind::kTrue:
      return true;
    case Kind::kNumber:
      return ParseNumber(text);
    case Kind::kText:
      break;
  }
  return text;
}

const Event::Field* Event::FindField(std::string_view key) const {
  const Field* const field = FindExactField(key);
  if (field != nullptr) return field;
  const auto* const renamed = std::ranges::find(kRenamedKeys, key, &RenamedKey::name);
  return renamed == kRenamedKeys.end() ? nullptr : FindExactField(renamed->old_name);
}

const Event::Field* Event::FindExactField(std::string_view key) const {
  const char* const source = Source().data();
  for (const Field& field : fields_) {
    // Few keys have the same length and last character; memcmp() for each would dominate the time.
    if (field.key_size != key.size()) continue;
    if (!key.empty() && source[field.key + field.key_size - 1] != key.back()) continue;
    if (std::string_view(source + field.key, field.key_size) == key) return &field;
  }
  return nullptr;
}

std::vector<std::pair<std::string_view, EventValue>> Event::Fields() const {
  std::vector<std::pair<std::string_view, EventValue>> fields;
  fields.reserve(fields_.size());
  for (const Field& field : fields_) fields.emplace_back(Key(field), Value(field));
  return fields;
}

std::optional<EventValue> Event::Find(std::string_view key) const {
  const Field* field = FindField(key);
  return field == nullptr ? std::nullopt : std::optional(Value(*field));
}

std::optional<double> Event::Number(std::string_view key) const {
  const Field* field = FindField(key);
  if (field == nullptr || field->kind != Kind::kNumber) return std::nullopt;
  const EventValue value = Value(*field);
  if (const auto* whole = std::get_if<std::int64_t>(&value)) return static_cast<double>(*whole);
  return std::get<double>(value);
}

std::optional<std::int64_t> Event::Whole(std::string_view key) const {
  const Field* field = FindField(key);
  if (field == nullptr || field->kind != Kind::kNumber) return std::nullopt;
  const EventValue value = Value(*field);
  const auto* whole = std::get_if<std::int64_t>(&value);
  return whole == nullptr ? std::nullopt : std::optional(*whole);
}

std::string_view Event::Text(std::string_view key) const {
  const Field* field = FindField(key);
  if (field == nullptr || field->kind != Kind::kText) return {};
  return Source().substr(field->value, field->value_size);
}

bool Event::Is(std::string_view key) const {
  const Field* field = FindField(key);
  return field != nullptr && field->kind == Kind::kTrue;
}

bool ParseEvent(std::string_view line, Event* event) {
  constexpr std::size_t kUsualFields = 48;
  if (line.size() > std::numeric_limits<std::uint32_t>::max()) return false;
  event->line = line;
  event->decoded_.clear();
  event->fields_.clear();
  event->fields_.reserve(kUsualFields);
  if (!PlainLineParser(event->line, &event->fields_).Parse()) {
    event->fields_.clear();
    if (!JsonLineParser(&event->fields_, &event->decoded_).Parse(line)) return false;
  }
  const auto at = ParseTimestamp(event->Text("ts"));
  if (!at || event->Text("ev").empty()) return false;
  event->at = *at;
  event->name = event->Text("ev");
  return true;
}

}  // namespace gaccd
