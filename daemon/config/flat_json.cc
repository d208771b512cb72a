#include "daemon/config/flat_json.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <cmath>
#include <vector>

namespace gaccd {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

std::string Cut(std::string_view text, std::size_t limit) {
  if (text.size() <= limit && JsonString(text).size() <= 2 * limit) return std::string(text);
  const std::size_t keep = text.size() > limit ? limit - 3 : text.size();
  const bool dense = JsonString(text.substr(0, keep)).size() + 3 > 2 * limit;
  // A control character takes 6 bytes.
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

}  // namespace gaccd
