// Splits a command line into words and flags, strictly.
//
// In argv:        --name=value   --name value   --bool   --nobool   -name=value   -- (words follow)
// In a flag file: one flag per line, as above; blank lines and lines that begin with # are skipped.
// --flagfile=a,b reads files, also from within a flag file (at most 8 levels). The last value wins.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/base/result.h"

namespace gaccd {

struct KnownFlag {
  std::string name;  // with dashes
  bool is_bool = false;
};

struct FlagValue {
  std::string name;   // with dashes
  std::string value;  // "true" or "false" for --bool and --nobool
  std::string where;  // "file:line: " or empty
};

struct Arguments {
  // in the order of the command line, with flag files expanded in place
  std::vector<FlagValue> flags;
  std::vector<std::string> words;
};

// kUsage with the offending text; kIo for a flag file that cannot be read.
[[nodiscard]] Result<Arguments> SplitArguments(std::span<const char* const> args,
                                               std::span<const KnownFlag> known);

// " (did you mean X?)" for the candidate nearest to `text`; empty if none is near.
[[nodiscard]] std::string Suggestion(std::string_view text,
                                     std::span<const std::string_view> candidates);

}  // namespace gaccd
