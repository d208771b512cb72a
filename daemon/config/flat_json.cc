#include "daemon/config/flat_json.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <cmath>
#include <limits>

namespace gaccd {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

std::string Cut(std::string_view text, std::size_t limit) {
  if (text.size() <= limit && JsonString(text).size() <= 2 * limit) return std::string(text);
  const std::size_t keep = text.size() > limit ? limit - 3 : text.size();
  const bool dense = JsonString(text.substr(0, keep)).size() + 3 > 2 * limit;
  // An escaped control character has 6 bytes.
  return std::string(text.substr(0, dense ? limit / 6 : keep)) + "...";
}

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
  Raw(key, std::to_string(value));
}
void JsonObject::operator()(std::string_view key, std::uint64_t value) {
  Raw(key, std::to_string(value));
}
void JsonObject::operator()(std::string_view key, double value) { Raw(key, JsonNumber(value)); }
void JsonObject::operator()(std::string_view key, std::string_view value) {
  Raw(key, JsonString(value));
}

void JsonObject::operator()(std::string_view key, std::span<const std::int64_t> values) {
  std::string list;
  for (const std::int64_t value : values) {
    list += list.empty() ? '[' : ',';
    list += std::to_string(value);
  }
  Raw(key, list.empty() ? "[]" : list + ']');
}

void JsonObject::Text(std::string_view key, std::string_view value, std::size_t limit) {
  if (!value.empty()) (*this)(key, Cut(value, limit));
}

void JsonObject::List(std::string_view key, const std::vector<int>& values, std::size_t limit) {
  Text(key, Join(values, ","), limit);
}

bool JsonFields::operator()(std::string_view key, double& value) {
  const Json* const member = object_.Find(key);
  if (member != nullptr && member->is_null()) value = std::numeric_limits<double>::quiet_NaN();
  return Set(key, object_.number(key), value);
}

bool JsonFields::operator()(std::string_view key, std::string& value) {
  const std::string* const text = object_.text(key);
  return Set(key, text == nullptr ? std::nullopt : std::optional<std::string_view>(*text), value);
}

void JsonFields::List(std::string_view key, std::vector<int>& values, std::size_t limit) {
  std::string text;
  Text(key, text, limit);
  for (const std::string& word : Split(text, ',')) {
    const auto value = ToNumber<int>(word);
    if (!value || *value < 0) break;
    values.push_back(*value);
  }
}

std::string JsonFields::FindProblem(std::span<const std::string_view> keys) const {
  std::string problem;
  for (const std::string_view key : keys) {
    if (!Has(key)) problem = StrCat(key, ": expected a value, found none");
    for (const auto& [wrong, expected] : problems_) {
      if (wrong == key) problem = StrCat(key, ": expected ", expected);
    }
  }
  return problem;
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
  return out.Finish();
}

}  // namespace gaccd
