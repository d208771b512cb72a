// The environment variables of a process, passed in as a function so that tests can make their own.
#pragma once

#include <cstdlib>
#include <functional>
#include <optional>
#include <string>

namespace gaccd {

// The value of a variable, or nothing when it is not set.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;

// Reads the variables of this process, as they are at every call.
[[nodiscard]] inline Environment ProcessEnvironment() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    if (value == nullptr) return std::nullopt;
    return value;
  };
}

}  // namespace gaccd
