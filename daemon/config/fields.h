// Functions derived from the description of a message in proto/ (its types, defaults and the
// options of proto/field.proto) by protobuf's reflection: checks, values from text, help.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "collectives/base/result.h"

namespace google::protobuf {
class Descriptor;
class FieldDescriptor;
class Message;
}  // namespace google::protobuf

namespace gaccd {

namespace proto {
class Field;
}  // namespace proto

// The options (proto/field.proto) of a field.
[[nodiscard]] const proto::Field& FieldRule(const google::protobuf::FieldDescriptor& field);

// kConfig with "field.path: what is wrong, found value" for the first field that is missing or out
// of range.
[[nodiscard]] Status CheckFields(const google::protobuf::Message& message);

// Sets the field at `path` ("model.layer[0].linear.out") to the value in `text`, within its range.
// kUsage: an unknown path (with the nearest one), a list element that does not exist, a field of
// another oneof case than the message has ("adamw" where it has "sgd"), an invalid value.
enum class ListElement : std::uint8_t { kMustExist, kAny };  // kAny: only checks the value
[[nodiscard]] Status SetField(google::protobuf::Message& message, std::string_view path,
                              std::string_view text, ListElement element);

// A field and its path, "batch.micro"; "model.layer[0].name" in a list.
struct NamedField {
  std::string path;
  const google::protobuf::FieldDescriptor* field;
};
// All scalar fields and empty messages below `type`, ordered by number.
[[nodiscard]] std::vector<NamedField> LeafFields(const google::protobuf::Descriptor& type);

// "exact, floor, ceil or nearest", "at least 1"; empty if every value of the type is valid.
[[nodiscard]] std::string RangeText(const google::protobuf::FieldDescriptor& field);
// Empty when the field has none.
[[nodiscard]] std::string DefaultText(const google::protobuf::FieldDescriptor& field);

// The spelling of enumerators of proto/ for users.

// SKIP_UPDATE is "skip-update".
[[nodiscard]] inline std::string ToKebabCase(std::string_view name) {
  std::string text(name);
  for (char& c : text) c = c == '_' ? '-' : c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  return text;
}

// Parts of CheckFields() that SetField() uses too.

// "a, b or c"
[[nodiscard]] std::string JoinNames(const std::vector<std::string>& names,
                                    std::string_view last = " or ");

// The values of an enum field, as users spell them.
[[nodiscard]] std::vector<std::string> Choices(const google::protobuf::FieldDescriptor& field);

// Why `value` is out of range; empty: it is valid.
[[nodiscard]] std::string NumberProblem(const google::protobuf::FieldDescriptor& field,
                                        double value);

// Why the value of the field is invalid, empty if it is valid; and the value for messages.
[[nodiscard]] std::pair<std::string, std::string> ValueProblem(
    const google::protobuf::Message& message, const google::protobuf::FieldDescriptor& field);

}  // namespace gaccd
