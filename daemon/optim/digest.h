// A digest to compare replicas: a function of the bits and positions of all values.
#pragma once

#include <cstdint>
#include <span>

namespace gaccd {

// Sum over j, modulo 2^64, of Mix64(w_j + (j + 1) * kGoldenStep): w_j are the bits of values 2j and
// 2j + 1 (an unpaired last value: with 0). Mix64 (daemon/tensor/random.h) is a bijection, so a
// change of one word always changes the digest. Digests of parts can be added:
//   ComputeDigest(all) == ComputeDigest(part one) + ComputeDigest(part two, its first value)
// Not cryptographic. REQUIRES: first, the position of values[0], is even.
[[nodiscard]] std::uint64_t ComputeDigest(std::span<const float> values, std::int64_t first = 0);

}  // namespace gaccd
