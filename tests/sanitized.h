// Whether the tests run under a sanitizer, which makes them several times slower: fewer sizes,
// seeds and updates then find as much.
#pragma once

namespace gaccd::tests {

#ifdef GACCD_SANITIZED
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace gaccd::tests
