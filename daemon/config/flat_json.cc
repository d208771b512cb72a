#include "daemon/config/flat_json.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

namespace gaccd {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

template <typename T>
std::string NumberText(T value) {
  std::array<char, 32> text{};  // the longest double takes 24 characters
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  return {text.data(), end};
}

template <typename T>
std::string RealText(T value) {
  return std::isfinite(value) ? NumberText(value) : "null";
}

unsigned char ByteAt(std::string_view text, std::size_t i) {
  return i < text.size() ? static_cast<unsigned char>(text[i]) : 0;
}

// Bytes of the UTF-8 character at `i`, or 0 when there is none: a stray, missing or overlong byte,
// a surrogate, or a code point above U+10FFFF (the table of RFC 3629, section 4).
std::size_t Utf8Length(std::string_view text, std::size_t i) {
  const unsigned char first = ByteAt(text, i);
  if (first < 0x80) return 1;
  if (first < 0xC2 || first > 0xF4) return 0;
  const std::size_t length = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  const unsigned char least = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
  const unsigned char most = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
  const unsigned char second = ByteAt(text, i + 1);
  if (second < least || second > most) return 0;
  for (std::size_t j = 2; j < length; ++j) {
    if ((ByteAt(text, i + j) & 0xC0) != 0x80) return 0;
  }
  return length;
}

void AppendEscaped(unsigned char byte, std::string& out) {
  static constexpr std::string_view kHex = "0123456789abcdef";
  switch (byte) {
    case '"':
      out += "\\\"";
      return;
    case '\\':
      out += "\\\\";
      return;
    case '\n':
      out += "\\n";
      return;
    case '\r':
      out += "\\r";
      return;
    case '\t':
      out += "\\t";
      return;
    default:
      break;
  }
  if (byte < 0x20 || byte == 0x7F) {
    out += "\\u00";
    out += kHex[byte >> 4];
    out += kHex[byte & 15];
  } else {
    out += static_cast<char>(byte);
  }
}

std::string ValueText(const Message& message, const FieldDescriptor& field) {
  if (field.is_repeated()) return "null";
  const google::protobuf::Reflection& read = *message.GetReflection();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return NumberText(read.GetInt32(message, &field));
    case FieldDescriptor::CPPTYPE_INT64:
      return NumberText(static_cast<std::int64_t>(read.GetInt64(message, &field)));
    case FieldDescriptor::CPPTYPE_UINT32:
      return NumberText(read.GetUInt32(message, &field));
    case FieldDescriptor::CPPTYPE_UINT64:
      return NumberText(static_cast<std::uint64_t>(read.GetUInt64(message, &field)));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return RealText(read.GetDouble(message, &field));
    case FieldDescriptor::CPPTYPE_FLOAT:
      return RealText(read.GetFloat(message, &field));
    case FieldDescriptor::CPPTYPE_BOOL:
      return read.GetBool(message, &field) ? "true" : "false";
    case FieldDescriptor::CPPTYPE_ENUM:
      return JsonString(read.GetEnum(message, &field)->name());
    case FieldDescriptor::CPPTYPE_STRING:
      return JsonString(read.GetString(message, &field));
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return "null";
  }
  return "null";
}

}  // namespace

std::string JsonString(std::string_view text) {
  std::string out = "\"";
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = Utf8Length(text, i);
    if (length == 0) {
      out += "\xEF\xBF\xBD";  // U+FFFD
      ++i;
    } else if (length == 1) {
      AppendEscaped(static_cast<unsigned char>(text[i]), out);
      ++i;
    } else {
      out += text.substr(i, length);
      i += length;
    }
  }
  out += '"';
  return out;
}

std::string JsonLine(const nlohmann::ordered_json& value) {
  return value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

std::string FlatJson(std::initializer_list<const Message*> parts) {
  std::string out = "{";
  std::vector<const FieldDescriptor*> fields;
  for (const Message* message : parts) {
    fields.clear();
    message->GetReflection()->ListFields(*message, &fields);
    for (const FieldDescriptor* field : fields) {
      if (out.size() > 1) out += ',';
      out += JsonString(field->name());
      out += ':';
      out += ValueText(*message, *field);
    }
  }
  out += '}';
  return out;
}

std::string FlatJson(const Message& message) { return FlatJson({&message}); }

}  // namespace gaccd
