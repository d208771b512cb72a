// GACCD_UNCHECKED: a function that the sanitizers do not instrument, as every barrier of every
// thread of a kernel calls it. They check the kernels. What it calls is instrumented, also small
// functions of the standard library: at -O1 they are not inlined.
#pragma once

#if defined(GACCD_SANITIZED)
#define GACCD_UNCHECKED \
  __attribute__((disable_sanitizer_instrumentation, no_sanitize("address", "undefined")))
#else
#define GACCD_UNCHECKED
#endif
