#include "collectives/comm/node_sum.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <vector>

namespace gaccd {
namespace {

constexpr std::size_t kElements = 5000;  // more than one block, and not a multiple of a vector

template <typename T>
class NodeSumTest : public ::testing::Test {
 protected:
  // `ranks` copies of random values.
  void Make(int ranks) {
    std::mt19937 random(static_cast<unsigned>(ranks));
    copies_.assign(static_cast<std::size_t>(ranks), std::vector<T>(kElements));
    for (auto& copy : copies_) {
      for (T& value : copy) {
        value = static_cast<T>(static_cast<double>(random()) / 3.0 - 7e8);
      }
    }
    pointers_.clear();
    for (auto& copy : copies_) pointers_.push_back(copy.data());
  }

  // ((0 + 1) + 2) + ...: the order that node_sum.h promises, so bits must be equal.
  std::vector<T> Expected() const {
    std::vector<T> sum = copies_[0];
    for (std::size_t r = 1; r < copies_.size(); ++r) {
      for (std::size_t i = 0; i < kElements; ++i) sum[i] = static_cast<T>(sum[i] + copies_[r][i]);
    }
    return sum;
  }

  std::vector<std::vector<T>> copies_;
  std::vector<void*> pointers_;
};

// Integers are unsigned here because the promise is that they wrap around.
using Types = ::testing::Types<float, double, std::uint32_t, std::uint64_t>;
TYPED_TEST_SUITE(NodeSumTest, Types);

template <typename T>
constexpr DType TypeOf() {
  if constexpr (std::is_same_v<T, std::uint32_t>) return DType::kI32;
  if constexpr (std::is_same_v<T, std::uint64_t>) return DType::kI64;
  return DTypeOf<T>;
}

TYPED_TEST(NodeSumTest, SumToAllWritesEveryCopyAndNothingElse) {
  for (int ranks = 1; ranks <= 9; ++ranks) {
    this->Make(ranks);
    const auto expected = this->Expected();
    const auto before = this->copies_;
    const Slice slice = {17, kElements - 40};
    SumToAll(TypeOf<TypeParam>(), this->pointers_, slice);
    for (std::size_t r = 0; r < before.size(); ++r) {
      for (std::size_t i = 0; i < kElements; ++i) {
        const bool inside = i >= slice.first && i < slice.first + slice.count;
        ASSERT_EQ(this->copies_[r][i], inside ? expected[i] : before[r][i])
            << ranks << " ranks, copy " << r << ", element " << i;
      }
    }
  }
}

TYPED_TEST(NodeSumTest, SumToMayWriteIntoAnyCopy) {
  for (int ranks = 1; ranks <= 9; ++ranks) {
    for (int target = 0; target < ranks; ++target) {
      this->Make(ranks);
      const auto expected = this->Expected();
      auto& copy = this->copies_[static_cast<std::size_t>(target)];
      const Slice slice = {64, kElements - 64};
      SumTo(TypeOf<TypeParam>(), this->pointers_, slice, copy.data() + slice.first);
      for (std::size_t i = slice.first; i < kElements; ++i) {
        ASSERT_EQ(copy[i], expected[i]) << ranks << " ranks, into " << target << ", element " << i;
      }
    }
  }
}

TYPED_TEST(NodeSumTest, AnEmptySliceChangesNothing) {
  for (int ranks : {1, 2, 5}) {
    this->Make(ranks);
    const auto before = this->copies_;
    SumToAll(TypeOf<TypeParam>(), this->pointers_, {100, 0});
    SumTo(TypeOf<TypeParam>(), this->pointers_, {100, 0}, this->copies_[0].data());
    EXPECT_EQ(this->copies_, before);
  }
}

}  // namespace
}  // namespace gaccd
