// Data for tests on several ranks: different on every rank, and with sums known in closed form.
#pragma once

#include <cstdint>
#include <type_traits>

#include "collectives/base/result.h"
#include "collectives/base/strings.h"

namespace gaccd::tests {

// The first thing that was wrong; the rest is usually its consequence.
class Notes {
 public:
  template <typename... Args>
  void Expect(bool condition, const Args&... what) {
    if (!condition && status_.ok()) status_ = Status(ErrorKind::kInternal, StrCat(what...));
  }
  [[nodiscard]] Status status() const { return status_; }

 private:
  Status status_;
};

// Chosen so that a sum over up to 240 ranks fits T but not the next narrower type: an i64 reduced
// through a double, or an f64 through a float, gives a wrong sum.
template <typename T>
constexpr T Base() {
  if constexpr (std::is_same_v<T, std::int64_t>) return (std::int64_t{1} << 54) + 1;
  if constexpr (std::is_same_v<T, double>) return static_cast<double>((std::int64_t{1} << 33) + 1);
  if constexpr (std::is_same_v<T, std::int32_t>) return (1 << 23) + 1;
  return T{0};
}

// Element i of rank r: ((i mod 997) - 498) (r + 1) + r + base.
template <typename T>
[[nodiscard]] T RankElement(int rank, std::size_t i) {
  if constexpr (std::is_same_v<T, std::uint8_t>) {
    return static_cast<std::uint8_t>(i * 7 + static_cast<std::size_t>(rank) * 13 + 1);
  } else {
    const auto wave = static_cast<std::int64_t>(i % 997) - 498;
    return static_cast<T>(wave * (rank + 1) + rank) + Base<T>();
  }
}

// The sum of RankElement over `ranks` ranks.
template <typename T>
[[nodiscard]] T SumOver(int ranks, std::size_t i) {
  const std::int64_t n = ranks;
  const auto wave = static_cast<std::int64_t>(i % 997) - 498;
  return static_cast<T>(wave * (n * (n + 1) / 2) + n * (n - 1) / 2) + static_cast<T>(n) * Base<T>();
}

}  // namespace gaccd::tests
