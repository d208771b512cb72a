// A digest to compare replicas: a function of the bits of all values and of their places.
#pragma once

#include <cstdint>
#include <span>

namespace gaccd {

// Sum over j, modulo 2^64, of Mix64(w_j + (j + 1) * kGoldenStep): w_j the bits of values
// 2j and 2j + 1 (a last one without a partner: with 0). Mix64 (daemon/tensor/random.h) is a
// bijection: a change of one word always shows. A sum, so that parts can be added:
//   DigestOf(all) == DigestOf(part one) + DigestOf(part two, its first value)
// Not for protection against people. REQUIRES: first, the place of values[0], is even.
[[nodiscard]] std::uint64_t DigestOf(std::span<const float> values, std::int64_t first = 0);

}  // namespace gaccd
