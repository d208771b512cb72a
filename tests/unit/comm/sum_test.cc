#include "collectives/comm/sum.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

constexpr std::size_t kElements = 5000;  // more than one block, and not a multiple of a vector
constexpr std::size_t kFirst = 17;
constexpr std::size_t kCount = kElements - 40;

// Integers are unsigned here because the promise is that they wrap around.
template <typename T>
constexpr DType ElementDType() {
  if constexpr (std::is_same_v<T, std::uint32_t>) {
    return DType::kI32;
  } else if constexpr (std::is_same_v<T, std::uint64_t>) {
    return DType::kI64;
  } else {
    return DTypeOf<T>;
  }
}

template <typename T>
class SumRangeTest : public ::testing::Test {
 protected:
  // `ranks` inputs of random values.
  void Make(int ranks) {
    std::mt19937 random(static_cast<unsigned>(ranks));
    inputs_.assign(static_cast<std::size_t>(ranks), std::vector<T>(kElements));
    for (auto& input : inputs_) {
      for (T& value : input) {
        const double drawn = static_cast<double>(random()) / 3.0;
        value = static_cast<T>(std::is_unsigned_v<T> ? drawn : drawn - 7e8);
      }
    }
    pointers_.clear();
    for (auto& input : inputs_) pointers_.push_back(input.data());
  }

  // ((0 + 1) + 2) + ...: the order that sum.h promises, so bits must be equal.
  std::vector<T> Expected() const {
    std::vector<T> sum = inputs_[0];
    for (std::size_t r = 1; r < inputs_.size(); ++r) {
      for (std::size_t i = 0; i < kElements; ++i) sum[i] = static_cast<T>(sum[i] + inputs_[r][i]);
    }
    return sum;
  }

  Status SumTo(std::span<void* const> outputs, std::size_t out_first) const {
    return SumRange(ElementDType<T>(), pointers_, kFirst, outputs, out_first, kCount);
  }

  std::vector<std::vector<T>> inputs_;
  std::vector<void*> pointers_;
};

using Types = ::testing::Types<float, double, std::uint32_t, std::uint64_t>;
TYPED_TEST_SUITE(SumRangeTest, Types);

TYPED_TEST(SumRangeTest, InPlaceWritesEveryInputAndNothingElse) {
  for (int ranks = 1; ranks <= 9; ++ranks) {
    this->Make(ranks);
    const auto expected = this->Expected();
    const auto before = this->inputs_;
    ASSERT_TRUE(this->SumTo(this->pointers_, kFirst).ok());
    for (std::size_t r = 0; r < before.size(); ++r) {
      for (std::size_t i = 0; i < kElements; ++i) {
        const bool inside = i >= kFirst && i < kFirst + kCount;
        ASSERT_EQ(this->inputs_[r][i], inside ? expected[i] : before[r][i])
            << ranks << " ranks, input " << r << ", element " << i;
      }
    }
  }
}

TYPED_TEST(SumRangeTest, OneOutputMayBeAnyInput) {
  for (int ranks = 1; ranks <= 9; ++ranks) {
    for (int target = 0; target < ranks; ++target) {
      this->Make(ranks);
      const auto expected = this->Expected();
      auto& input = this->inputs_[static_cast<std::size_t>(target)];
      void* const out = input.data();
      ASSERT_TRUE(this->SumTo({&out, 1}, kFirst).ok());
      for (std::size_t i = kFirst; i < kFirst + kCount; ++i) {
        ASSERT_EQ(input[i], expected[i]) << ranks << " ranks, into " << target << ", element " << i;
      }
    }
  }
}

TYPED_TEST(SumRangeTest, WritesAnyNumberOfOutputsAtOffset) {
  for (int ranks = 1; ranks <= 5; ++ranks) {
    for (std::size_t outs = 1; outs <= 6; ++outs) {
      this->Make(ranks);
      const auto expected = this->Expected();
      std::vector<std::vector<TypeParam>> outputs(outs, std::vector<TypeParam>(kElements, 7));
      std::vector<void*> to;
      for (auto& output : outputs) to.push_back(output.data());
      ASSERT_TRUE(this->SumTo(to, 3).ok());
      for (const auto& output : outputs) {
        for (std::size_t i = 0; i < kElements; ++i) {
          const bool inside = i >= 3 && i < kCount + 3;
          ASSERT_EQ(output[i], inside ? expected[i - 3 + kFirst] : TypeParam{7})
              << ranks << " ranks, " << outs << " outputs, element " << i;
        }
      }
    }
  }
}

TEST(SumRange, NoElementsChangeNothing) {
  for (const std::size_t ranks : {1UL, 2UL, 5UL}) {
    std::vector<float> data(ranks, 3);
    std::vector<void*> pointers;
    for (float& value : data) pointers.push_back(&value);
    EXPECT_TRUE(SumRange(DType::kF32, pointers, 0, pointers, 0, 0).ok());
    EXPECT_EQ(data, std::vector<float>(ranks, 3));
  }
}

TEST(SumRange, RefusesUnsupportedTypes) {
  for (const std::size_t ranks : {1UL, 2UL, 5UL}) {
    std::vector<std::uint8_t> data(ranks, 3);
    std::vector<void*> pointers;
    for (std::uint8_t& value : data) pointers.push_back(&value);
    EXPECT_THAT(SumRange(DType::kU8, pointers, 0, pointers, 0, 1), HasKind(ErrorKind::kInternal));
    EXPECT_EQ(data, std::vector<std::uint8_t>(ranks, 3));
  }
}

// 256 + 1 + 1 is 258 in f32, and 256 where every step is rounded to bf16.
TEST(SumRange, AddsBf16InF32) {
  std::uint16_t values[] = {0x4380, 0x3f80, 0x3f80};
  const std::vector<void*> pointers = {&values[0], &values[1], &values[2]};
  const std::vector<const void*> in(pointers.begin(), pointers.end());
  EXPECT_TRUE(SumRange(DType::kBF16, in, 0, pointers, 0, 1).ok());
  for (const std::uint16_t value : values) EXPECT_EQ(value, 0x4381);
}

// The bits of the first two would be rounded to zero and to infinity.
TEST(SumRange, NarrowedNanIsNan) {
  const std::uint32_t bits[] = {0x7fff'ffffU, 0x7f80'0001U, 0xffff'ffffU};
  float values[3];
  std::memcpy(values, bits, sizeof bits);
  std::uint16_t narrow[3];
  NarrowBf16(values, narrow);
  for (const std::uint16_t value : narrow) EXPECT_GT(value & 0x7fffU, 0x7f80U) << value;
}

template <typename T>
T Sum(T a, T b) {
  const std::vector<const void*> in = {&a, &b};
  T sum{};
  void* const out = &sum;
  EXPECT_TRUE(SumRange(DTypeOf<T>, in, 0, {&out, 1}, 0, 1).ok());
  return sum;
}

TEST(SumRange, KeepsNegativeZeroAndNan) {
  EXPECT_TRUE(std::signbit(Sum(-0.0F, -0.0F)));
  EXPECT_TRUE(std::isnan(Sum(1.0F, std::nanf(""))));
  EXPECT_TRUE(
      std::isinf(Sum(std::numeric_limits<float>::max(), std::numeric_limits<float>::max())));
  EXPECT_EQ(Sum(std::numeric_limits<std::int32_t>::max(), 1),
            std::numeric_limits<std::int32_t>::min());
}

TEST(WorkerSlice, CoversRangeOnceOnLineBoundaries) {
  for (const std::size_t count : {0UL, 1UL, 15UL, 16UL, 17UL, 314UL, 4097UL, 669'706UL}) {
    for (const int workers : {1, 2, 3, 7, 8, 240}) {
      std::size_t next = 0;
      for (int w = 0; w < workers; ++w) {
        const Slice slice = WorkerSlice(count, w, workers);
        EXPECT_EQ(slice.first, next);
        EXPECT_TRUE(slice.first % 16 == 0 || slice.first == count);
        EXPECT_LE(slice.count, (count / 16 + 1) / static_cast<std::size_t>(workers) * 16 + 32);
        next = slice.first + slice.count;
      }
      EXPECT_EQ(next, count);
    }
  }
}

TEST(WorkerSlice, DoesNotOverflow) {
  const std::size_t huge = std::numeric_limits<std::size_t>::max() / 2;
  const Slice last = WorkerSlice(huge, 239, 240);
  EXPECT_EQ(last.first + last.count, huge);
}

}  // namespace
}  // namespace gaccd
