// The rules of fields (proto/field.proto): parts of CheckFields() that SetField() uses too.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace google::protobuf {
class FieldDescriptor;
class Message;
}  // namespace google::protobuf

namespace gaccd {

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
