// Fatal: a mistake that real hardware would punish by wrong values or a hang stops the test here.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>

namespace gaccd::standin {

[[noreturn]] inline void Fatal(const std::string& message) {
  std::fprintf(stderr, "stand-in GPU: %s\n", message.c_str());
  std::fflush(stderr);
  std::abort();
}

}  // namespace gaccd::standin
