// gaccd for man and for bash, made from the tables of the help.
#pragma once

#include <string>

namespace gaccd {

// gaccd.1: every verb with its flags, and the fields of the job text, in the macros of man(7).
[[nodiscard]] std::string ManualPage();

// A script for bash that completes verbs, flags, their values where they are choices, and file
// names.
[[nodiscard]] std::string BashCompletion();

}  // namespace gaccd
