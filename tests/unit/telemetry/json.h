// Reads a line of JSON back, with protobuf's parser: not the code that wrote it.
#pragma once

#include <map>
#include <string>
#include <variant>
#include <vector>

namespace gaccd::testing_json {

using Value = std::variant<std::nullptr_t, bool, double, std::string>;
using Object = std::map<std::string, Value>;

// A flat object. A test failure, and an empty object, when `text` is anything else.
Object Parse(const std::string& text);

// The lines of a file, without line breaks.
std::vector<std::string> Lines(const std::string& path);
std::string Content(const std::string& path);

// A test failure when the key is missing or of another type.
double Number(const Object& object, const std::string& key);
std::string Text(const Object& object, const std::string& key);
bool Bool(const Object& object, const std::string& key);
bool IsNull(const Object& object, const std::string& key);

}  // namespace gaccd::testing_json
