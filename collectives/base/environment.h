// Environment variables of a process, passed as a function so that tests can replace them.
#pragma once

#include <cstdlib>
#include <functional>
#include <optional>
#include <string>

namespace gaccd {

// The value of a variable; empty if it is not set.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;

// Reads the variables of this process at every call.
[[nodiscard]] inline Environment ProcessEnvironment() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    if (value == nullptr) return std::nullopt;
    return value;
  };
}

}  // namespace gaccd
