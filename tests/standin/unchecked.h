// GACCD_UNCHECKED: a function that sanitizers do not instrument, for the inner loops of the
// stand-in itself: every barrier of every thread of a kernel, products of matrices. They check the
// kernels. What such a function calls is instrumented, also small functions of the standard
// library, which are not inlined at -O1.
#pragma once

#if defined(GACCD_SANITIZED)
#define GACCD_UNCHECKED \
  __attribute__((disable_sanitizer_instrumentation, no_sanitize("address", "undefined")))
#else
#define GACCD_UNCHECKED
#endif
