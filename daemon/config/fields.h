// What follows from the description of a message in proto/ (its types, its defaults and the options
// of proto/field.proto), by protobuf's reflection: checks, values from text, help.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
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

// The options (proto/field.proto) that a field was declared with.
[[nodiscard]] const proto::Field& FieldRule(const google::protobuf::FieldDescriptor& field);

// kConfig with "field.path: what is wrong, found value" for the first field that is missing or out
// of its range.
[[nodiscard]] Status CheckFields(const google::protobuf::Message& message);

// Sets the field at `path` ("model.layer[0].linear.out") to what `text` says, within its range.
// Errors are kUsage: an unknown path (with the nearest one), a list element that is not there, a
// field of another kind than the message has ("adamw" where it has "sgd"), a wrong value.
enum class ListElement : std::uint8_t { kMustExist, kAny };  // kAny: only the value is checked
[[nodiscard]] Status SetField(google::protobuf::Message& message, std::string_view path,
                              std::string_view text, ListElement element);

// A field and its path, "batch.micro"; "model.layer[0].name" in a list.
struct NamedField {
  std::string path;
  const google::protobuf::FieldDescriptor* field;
};
// All scalar fields and empty messages below `type`, in the order of their numbers.
[[nodiscard]] std::vector<NamedField> LeafFields(const google::protobuf::Descriptor& type);

// "exact, floor, ceil or nearest", "at least 1"; empty where every value of the type is taken.
[[nodiscard]] std::string RangeText(const google::protobuf::FieldDescriptor& field);
// Empty when the field has none.
[[nodiscard]] std::string DefaultText(const google::protobuf::FieldDescriptor& field);

}  // namespace gaccd
