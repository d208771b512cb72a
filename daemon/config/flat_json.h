// Protobuf messages as one flat line of JSON: what dashboards read.
//
// Keys are field names, in the order of the field numbers; unset fields are left out. Integers stay
// integers, doubles are the shortest text that reads back the same, NaN and infinities are null,
// enums are their names, bool is true or false. Control characters are escaped and bytes that are
// not UTF-8 become U+FFFD, so every result is valid JSON without a line break. Thread-safe.
#pragma once

#include <initializer_list>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace google::protobuf {
class Message;
}

namespace gaccd {

// {"mode":"exact","nodes":30}
// REQUIRES: scalar fields only; a message or repeated field is printed as null.
[[nodiscard]] std::string FlatJson(const google::protobuf::Message& message);

// The fields of all messages in one object, one message after the other: envelope, then event.
[[nodiscard]] std::string FlatJson(std::initializer_list<const google::protobuf::Message*> parts);

// `value` as one line that ends with a newline; numbers and texts as above.
[[nodiscard]] std::string JsonLine(const nlohmann::ordered_json& value);

// The text in quotes, escaped as above.
[[nodiscard]] std::string JsonString(std::string_view text);

}  // namespace gaccd
