#include "collectives/comm/sum.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace gaccd {
namespace {

template <typename T>
std::vector<T> Sum(const std::vector<std::vector<T>>& inputs) {
  std::vector<const void*> in;
  for (const auto& input : inputs) in.push_back(input.data());
  std::vector<T> out(inputs[0].size());
  void* to = out.data();
  SumRange(DTypeOf<T>, in, 0, {&to, 1}, 0, out.size());
  return out;
}

TEST(SumRange, FloatsAreRoundedOnce) {
  // In float the small values vanish one by one: 1 + 2^-25 + ... stays 1.
  std::vector<std::vector<float>> inputs = {{1.0F}};
  for (int i = 0; i < 64; ++i) inputs.push_back({std::ldexp(1.0F, -25)});
  EXPECT_EQ(Sum(inputs)[0], 1.0F + std::ldexp(1.0F, -19));
}

TEST(SumRange, DoesNotDependOnTheOrderForNumbersOfOneSize) {
  std::vector<std::vector<float>> forward;
  for (int i = 0; i < 200; ++i) forward.push_back({std::sin(static_cast<float>(i))});
  const std::vector<std::vector<float>> backward(forward.rbegin(), forward.rend());
  EXPECT_EQ(Sum(forward), Sum(backward));
}

TEST(SumRange, IntegersWrapAround) {
  constexpr auto kMax32 = std::numeric_limits<std::int32_t>::max();
  constexpr auto kMax64 = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(Sum<std::int32_t>({{kMax32}, {1}})[0], std::numeric_limits<std::int32_t>::min());
  EXPECT_EQ(Sum<std::int64_t>({{kMax64}, {1}})[0], std::numeric_limits<std::int64_t>::min());
}

TEST(SumRange, KeepsNegativeZeroAndNotANumber) {
  EXPECT_TRUE(std::signbit(Sum<float>({{-0.0F}, {-0.0F}})[0]));
  EXPECT_TRUE(std::isnan(Sum<float>({{1.0F}, {std::nanf("")}})[0]));
  EXPECT_TRUE(std::isinf(
      Sum<float>({{std::numeric_limits<float>::max()}, {std::numeric_limits<float>::max()}})[0]));
}

TEST(SumRange, WritesEveryOutputAtItsOffsetAndNothingElse) {
  // More than one block, and no multiple of one.
  const std::size_t count = 5000;
  std::vector<double> a(count + 7);
  std::vector<double> b(count + 7);
  for (std::size_t i = 0; i < a.size(); ++i) {
    a[i] = static_cast<double>(i);
    b[i] = 2.0 * static_cast<double>(i);
  }
  std::vector<double> first(count + 20, -1);
  std::vector<double> second(count + 20, -1);
  const std::vector<const void*> in = {a.data(), b.data()};
  const std::vector<void*> out = {first.data(), second.data()};
  SumRange(DType::kF64, in, 3, out, 10, count);
  EXPECT_EQ(first, second);
  for (std::size_t i = 0; i < first.size(); ++i) {
    const bool inside = i >= 10 && i < count + 10;
    EXPECT_EQ(first[i], inside ? 3.0 * static_cast<double>(i - 10 + 3) : -1.0) << i;
  }
}

TEST(SliceOf, CoversEverythingOnceOnLineBoundaries) {
  for (const std::size_t count : {0UL, 1UL, 15UL, 16UL, 17UL, 314UL, 4097UL, 669'706UL}) {
    for (const int workers : {1, 2, 3, 7, 8, 240}) {
      std::size_t next = 0;
      for (int w = 0; w < workers; ++w) {
        const Slice slice = SliceOf(count, w, workers);
        EXPECT_EQ(slice.first, next);
        EXPECT_TRUE(slice.first % 16 == 0 || slice.first == count);
        EXPECT_LE(slice.count, (count / 16 + 1) / static_cast<std::size_t>(workers) * 16 + 32);
        next = slice.first + slice.count;
      }
      EXPECT_EQ(next, count);
    }
  }
}

TEST(SliceOf, DoesNotOverflow) {
  const std::size_t huge = std::numeric_limits<std::size_t>::max() / 2;
  const Slice last = SliceOf(huge, 239, 240);
  EXPECT_EQ(last.first + last.count, huge);
}

}  // namespace
}  // namespace gaccd
