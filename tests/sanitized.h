// Whether the tests run under a sanitizer, which makes them several times slower: fewer sizes,
// seeds and updates then find as much.
//
// GACCD_UNCHECKED: a function that sanitizers do not instrument, for the inner loops of the
// stand-in of the GPU: every barrier of every thread of a kernel, products of matrices. They check
// the kernels. What such a function calls is instrumented, also small functions of the standard
// library, which are not inlined at -O1.
#pragma once

#if defined(GACCD_SANITIZED)
#define GACCD_UNCHECKED \
  __attribute__((disable_sanitizer_instrumentation, no_sanitize("address", "undefined")))
#else
#define GACCD_UNCHECKED
#endif

namespace gaccd::tests {

#ifdef GACCD_SANITIZED
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace gaccd::tests
