#include "tests/unit/telemetry/json.h"

#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

namespace gaccd::testing_json {
namespace {

template <typename T>
T Get(const Object& object, const std::string& key) {
  const auto found = object.find(key);
  if (found != object.end()) {
    if (const T* value = std::get_if<T>(&found->second)) return *value;
  }
  ADD_FAILURE() << "no '" << key << "' of the type asked for";
  return T{};
}

}  // namespace

Object Parse(const std::string& text) {
  google::protobuf::Struct parsed;
  const auto status = google::protobuf::util::JsonStringToMessage(text, &parsed);
  EXPECT_TRUE(status.ok()) << text << ": " << status.ToString();
  Object object;
  for (const auto& [key, value] : parsed.fields()) {
    switch (value.kind_case()) {
      case google::protobuf::Value::kNullValue:
        object[key] = nullptr;
        break;
      case google::protobuf::Value::kBoolValue:
        object[key] = value.bool_value();
        break;
      case google::protobuf::Value::kNumberValue:
        object[key] = value.number_value();
        break;
      case google::protobuf::Value::kStringValue:
        object[key] = value.string_value();
        break;
      default:
        ADD_FAILURE() << "'" << key << "' is not flat: " << text;
    }
  }
  return object;
}

std::vector<std::string> Lines(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

std::string Content(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return std::move(text).str();
}

double Number(const Object& object, const std::string& key) { return Get<double>(object, key); }
std::string Text(const Object& object, const std::string& key) {
  return Get<std::string>(object, key);
}
bool Bool(const Object& object, const std::string& key) { return Get<bool>(object, key); }
bool IsNull(const Object& object, const std::string& key) {
  const auto found = object.find(key);
  return found != object.end() && std::holds_alternative<std::nullptr_t>(found->second);
}

}  // namespace gaccd::testing_json
