#include "daemon/config/flat_json.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

namespace gaccd {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// nlohmann-json writes 3648 as 3648.0; readers of the lines know the shorter form.
template <typename T>
std::string NumberText(T value) {
  std::array<char, 32> text{};  // the longest double takes 24 characters
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  return {text.data(), end};
}

bool IsPlain(char c) { return c >= ' ' && c <= '~' && c != '"' && c != '\\'; }

std::string Cut(std::string_view text, std::size_t limit) {
  if (text.size() <= limit && JsonString(text).size() <= 2 * limit) return std::string(text);
  const std::size_t keep = text.size() > limit ? limit - 3 : text.size();
  const bool dense = JsonString(text.substr(0, keep)).size() + 3 > 2 * limit;
  // A control character takes 6 bytes.
  return std::string(text.substr(0, dense ? limit / 6 : keep)) + "...";
}

// Keeps the scalar members of the outermost object.
class MemberReader : public nlohmann::json::json_sax_t {
 public:
  using Members = std::map<std::string, JsonMembers::Value, std::less<>>;
  explicit MemberReader(Members& members) : members_(members) {}

  bool null() override { return Skip(); }
  bool boolean(bool value) override { return Keep(value); }
  bool number_integer(std::int64_t value) override { return Keep(value); }
  bool number_unsigned(std::uint64_t value) override { return Keep(value); }
  bool number_float(double value, const std::string& /*text*/) override { return Keep(value); }
  bool string(std::string& value) override { return Keep(std::move(value)); }
  bool binary(nlohmann::json::binary_t& /*value*/) override { return false; }
  bool start_object(std::size_t /*members*/) override {
    if (depth_ == 1) members_.erase(key_);
    ++depth_;
    return true;
  }
  bool end_object() override { return --depth_ >= 0; }
  bool start_array(std::size_t size) override { return depth_ > 0 && start_object(size); }
  bool end_array() override { return end_object(); }
  bool key(std::string& name) override {
    if (depth_ == 1) key_ = std::move(name);
    return true;
  }
  bool parse_error(std::size_t /*position*/, const std::string& /*token*/,
                   const nlohmann::json::exception& /*error*/) override {
    return false;
  }

 private:
  bool Skip() {
    if (depth_ == 1) members_.erase(key_);
    return depth_ > 0;
  }
  bool Keep(JsonMembers::Value value) {
    if (depth_ == 1) members_.insert_or_assign(key_, std::move(value));
    return depth_ > 0;
  }

  Members& members_;
  std::string key_;  // of the outermost object
  int depth_ = 0;
};

}  // namespace

void JsonObject::Key(std::string_view key) {
  if (text_.size() > 1) text_ += ',';
  text_.append("\"").append(key).append("\":");
}

void JsonObject::Raw(std::string_view key, std::string_view value) {
  Key(key);
  text_ += value;
}

void JsonObject::operator()(std::string_view key, std::int64_t value) {
  Raw(key, NumberText(value));
}
void JsonObject::operator()(std::string_view key, std::uint64_t value) {
  Raw(key, NumberText(value));
}
void JsonObject::operator()(std::string_view key, double value) {
  Raw(key, std::isfinite(value) ? NumberText(value) : "null");
}
void JsonObject::operator()(std::string_view key, std::string_view value) {
  Raw(key, JsonString(value));
}

void JsonObject::Text(std::string_view key, std::string_view value, std::size_t limit) {
  if (!value.empty()) (*this)(key, Cut(value, limit));
}

void AppendFields(const Message& message, JsonObject& out) {
  const google::protobuf::Reflection& read = *message.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  read.ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    const std::string& name = field->name();
    const auto type = field->is_repeated() ? FieldDescriptor::CPPTYPE_MESSAGE : field->cpp_type();
    switch (type) {
      case FieldDescriptor::CPPTYPE_INT32:
        out(name, read.GetInt32(message, field));
        break;
      case FieldDescriptor::CPPTYPE_INT64:
        out(name, std::int64_t{read.GetInt64(message, field)});
        break;
      case FieldDescriptor::CPPTYPE_UINT64:
        out(name, std::uint64_t{read.GetUInt64(message, field)});
        break;
      case FieldDescriptor::CPPTYPE_DOUBLE:
        out(name, read.GetDouble(message, field));
        break;
      case FieldDescriptor::CPPTYPE_BOOL:
        out(name, read.GetBool(message, field));
        break;
      case FieldDescriptor::CPPTYPE_ENUM:
        out(name, std::string_view(read.GetEnum(message, field)->name()));
        break;
      case FieldDescriptor::CPPTYPE_STRING:
        out(name, std::string_view(read.GetString(message, field)));
        break;
      default:
        out(name, std::nan(""));
    }
  }
}

std::string FlatJson(const Message& message) {
  JsonObject out;
  AppendFields(message, out);
  return out.Take();
}

std::optional<JsonMembers> JsonMembers::Parse(std::string_view text) {
  JsonMembers members;
  MemberReader reader(members.values_);
  if (!nlohmann::json::sax_parse(text.begin(), text.end(), &reader)) return std::nullopt;
  return members;
}

const JsonMembers::Value* JsonMembers::Find(std::string_view name) const {
  const auto found = values_.find(name);
  return found == values_.end() ? nullptr : &found->second;
}

const std::string* JsonMembers::text(std::string_view name) const {
  return std::get_if<std::string>(Find(name));
}

std::optional<bool> JsonMembers::boolean(std::string_view name) const {
  const auto* value = std::get_if<bool>(Find(name));
  return value == nullptr ? std::nullopt : std::optional(*value);
}

std::optional<double> JsonMembers::number(std::string_view name) const {
  const Value* value = Find(name);
  if (const auto* real = std::get_if<double>(value)) return *real;
  if (const auto* whole = std::get_if<std::int64_t>(value)) return static_cast<double>(*whole);
  if (const auto* whole = std::get_if<std::uint64_t>(value)) return static_cast<double>(*whole);
  return std::nullopt;
}

bool IsNestedDeeper(std::string_view text, int most) {
  int depth = 0;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\') ++i;
      quoted = c != '"';
    } else if (c == '"') {
      quoted = true;
    } else if (c == '{' || c == '[') {
      if (++depth > most) return true;
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return false;
}

std::string ValidUtf8(std::string_view text) {
  return nlohmann::json::parse(JsonString(text)).get<std::string>();
}

std::string JsonString(std::string_view text) {
  if (std::all_of(text.begin(), text.end(), IsPlain)) return '"' + std::string(text) + '"';
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace gaccd
