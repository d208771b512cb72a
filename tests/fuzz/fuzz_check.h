// What a fuzz target promises: when a condition does not hold, the fuzzer reports the input.
#pragma once

#include <cstdio>
#include <cstdlib>

namespace gaccd {

inline void FuzzCheck(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %s\n", what);
  std::abort();
}

}  // namespace gaccd
