#include "collectives/base/json.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "collectives/base/strings.h"

namespace gaccd {
namespace {

using Library = nlohmann::json;

bool IsPlain(char c) { return c >= ' ' && c <= '~' && c != '"' && c != '\\'; }

// Open arrays and objects are on `open_`; those that are too deep are only counted.
class TreeReader : public Library::json_sax_t {
 public:
  bool null() override { return Add(Json()); }
  bool boolean(bool value) override { return Add(value); }
  bool number_integer(std::int64_t value) override { return Add(value); }
  bool number_unsigned(std::uint64_t value) override {
    return Add(std::in_range<std::int64_t>(value) ? Json(static_cast<std::int64_t>(value))
                                                  : Json(value));
  }
  bool number_float(double value, const std::string& /*text*/) override { return Add(value); }
  bool string(std::string& value) override { return Add(std::move(value)); }
  bool binary(Library::binary_t& /*value*/) override { return false; }
  bool start_object(std::size_t /*size*/) override { return Open(true); }
  bool start_array(std::size_t /*size*/) override { return Open(false); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }
  bool key(std::string& name) override {
    if (too_deep_ == 0) open_.back().name = std::move(name);
    return true;
  }
  bool parse_error(std::size_t /*at*/, const std::string& /*token*/,
                   const Library::exception& error) override {
    // "[json.exception.parse_error.101] parse error at line 1, column 3: ..."
    const std::string_view what = error.what();
    error_ = what.substr(std::min(what.size(), what.find("] ") + 2));
    return false;
  }

  Json ReleaseResult() { return std::move(root_); }
  [[nodiscard]] const std::string& error() const { return error_; }

 private:
  struct Level {
    bool is_object;
    Json::Array values;
    Json::Object members;
    std::string name;  // of the next member
  };

  bool Add(Json value) {
    if (too_deep_ > 0) return true;
    if (open_.empty()) {
      root_ = std::move(value);
    } else if (Level& in = open_.back(); in.is_object) {
      in.members.emplace_back(std::move(in.name), std::move(value));
    } else {
      in.values.push_back(std::move(value));
    }
    return true;
  }
  bool Open(bool is_object) {
    if (too_deep_ > 0 || std::ssize(open_) == Json::kMaxDepth) {
      ++too_deep_;
    } else {
      open_.push_back({.is_object = is_object, .values = {}, .members = {}, .name = {}});
    }
    return true;
  }
  bool Close() {
    if (too_deep_ > 0) return --too_deep_ > 0 || Add(Json());
    Level last = std::move(open_.back());
    open_.pop_back();
    return Add(last.is_object ? Json(std::move(last.members)) : Json(std::move(last.values)));
  }

  Json root_;
  std::vector<Level> open_;
  std::int64_t too_deep_ = 0;
  std::string error_;
};

// Integers are compared exactly, others as double.
bool SameNumber(const Json& a, const Json& b) {
  if (const auto one = a.integer<std::int64_t>(), other = b.integer<std::int64_t>(); one && other) {
    return *one == *other;
  }
  if (const auto one = a.integer<std::uint64_t>(), other = b.integer<std::uint64_t>();
      one && other) {
    return *one == *other;
  }
  return a.number() == b.number();
}

bool SameMembers(const Json& a, const Json& b) {
  using Names = std::vector<std::pair<std::string_view, const Json*>>;
  const auto sorted = [](const Json::Object& object) {
    Names names;
    names.reserve(object.size());
    for (const auto& [name, value] : object) names.emplace_back(name, &value);
    std::ranges::stable_sort(names, {}, &Names::value_type::first);
    return names;
  };
  return std::ranges::equal(sorted(*a.object()), sorted(*b.object()),
                            [](const auto& one, const auto& other) {
                              return one.first == other.first && *one.second == *other.second;
                            });
}

}  // namespace

std::optional<Json> Json::Parse(std::string_view text, std::string* error) {
  TreeReader reader;
  if (Library::sax_parse(text.begin(), text.end(), &reader)) return reader.ReleaseResult();
  if (error != nullptr) *error = reader.error();
  return std::nullopt;
}

std::optional<Json> Json::ParseObject(std::string_view text) {
  std::optional<Json> json = Parse(text);
  return json && json->object() != nullptr ? std::move(json) : std::nullopt;
}

std::optional<bool> Json::boolean() const {
  const auto* value = std::get_if<bool>(&value_);
  return value == nullptr ? std::nullopt : std::optional(*value);
}

std::optional<double> Json::number() const {
  if (const auto* real = std::get_if<double>(&value_)) return *real;
  if (const auto* whole = std::get_if<std::int64_t>(&value_)) return static_cast<double>(*whole);
  if (const auto* whole = std::get_if<std::uint64_t>(&value_)) return static_cast<double>(*whole);
  return std::nullopt;
}

const Json* Json::Find(std::string_view name) const {
  const Object* const members = object();
  if (members == nullptr) return nullptr;
  const auto found = std::find_if(members->rbegin(), members->rend(),
                                  [&](const Member& member) { return member.first == name; });
  return found == members->rend() ? nullptr : &found->second;
}

const std::string* Json::text(std::string_view name) const {
  const Json* const member = Find(name);
  return member == nullptr ? nullptr : member->text();
}

std::optional<bool> Json::boolean(std::string_view name) const {
  const Json* const member = Find(name);
  return member == nullptr ? std::nullopt : member->boolean();
}

std::optional<double> Json::number(std::string_view name) const {
  const Json* const member = Find(name);
  return member == nullptr ? std::nullopt : member->number();
}

bool Json::operator==(const Json& other) const {
  if (number() && other.number()) return SameNumber(*this, other);
  if (object() != nullptr && other.object() != nullptr) return SameMembers(*this, other);
  return value_ == other.value_;
}

void Json::AppendTo(std::string& out, int indent, int depth) const {
  const auto line = [&](int levels) {
    if (indent >= 0) out.append(1, '\n').append(static_cast<std::size_t>(indent * levels), ' ');
  };
  const auto each = [&](const auto& values, const char* brackets, const auto& append) {
    out += brackets[0];
    for (bool first = true; const auto& value : values) {
      if (!std::exchange(first, false)) out += ',';
      line(depth + 1);
      append(value);
    }
    if (!values.empty()) line(depth);
    out += brackets[1];
  };
  if (const Array* values = array()) {
    each(*values, "[]", [&](const Json& value) { value.AppendTo(out, indent, depth + 1); });
  } else if (const Object* members = object()) {
    each(*members, "{}", [&](const Member& member) {
      out.append(JsonString(member.first)).append(indent >= 0 ? ": " : ":");
      member.second.AppendTo(out, indent, depth + 1);
    });
  } else if (const std::string* value = text()) {
    out += JsonString(*value);
  } else if (const auto* real = std::get_if<double>(&value_)) {
    const std::string digits = JsonNumber(*real);
    const bool whole = digits.find_first_not_of("-0123456789") == std::string::npos;
    out.append(digits).append(whole ? ".0" : "");
  } else if (const auto* number = std::get_if<std::int64_t>(&value_)) {
    out += NumberText(*number);
  } else if (const auto* large = std::get_if<std::uint64_t>(&value_)) {
    out += NumberText(*large);
  } else {
    out += is_null() ? "null" : std::get<bool>(value_) ? "true" : "false";
  }
}

std::string Json::Dump(int indent) const {
  std::string out;
  AppendTo(out, indent, 0);
  return out;
}

std::vector<std::string> TextsIn(const Json& list) {
  std::vector<std::string> texts;
  if (list.array() == nullptr) return texts;
  for (const Json& value : *list.array()) {
    if (value.text() == nullptr) return {};
    texts.push_back(*value.text());
  }
  return texts;
}

bool IsNestedDeeper(std::string_view text, int depth) {
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\') ++i;
      quoted = c != '"';
    } else if (c == '"') {
      quoted = true;
    } else if (c == '{' || c == '[') {
      if (--depth < 0) return true;
    } else if (c == '}' || c == ']') {
      ++depth;
    }
  }
  return false;
}

bool IsUtf8(std::string_view text) {
  try {
    (void)Library(text).dump();
    return true;
  } catch (const Library::type_error&) {
    return false;
  }
}

std::string ValidUtf8(std::string_view text) { return *Json::Parse(JsonString(text))->text(); }

std::string Utf8Name(std::string_view name) {
  return IsUtf8(name) ? std::string(name) : ValidUtf8(Printable(name));
}

std::string JsonString(std::string_view text) {
  if (std::all_of(text.begin(), text.end(), IsPlain)) return '"' + std::string(text) + '"';
  return Library(text).dump(-1, ' ', false, Library::error_handler_t::replace);
}

std::string JsonNumber(double value) { return std::isfinite(value) ? NumberText(value) : "null"; }

}  // namespace gaccd
