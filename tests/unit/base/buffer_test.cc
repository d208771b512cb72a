#include <gtest/gtest.h>

#include <vector>

#include "collectives/base/dtype.h"

namespace gaccd {
namespace {

TEST(DType, SizesAndNames) {
  EXPECT_EQ(SizeOf(DType::kU8), sizeof(std::uint8_t));
  EXPECT_EQ(SizeOf(DType::kI32), sizeof(std::int32_t));
  EXPECT_EQ(SizeOf(DType::kF32), sizeof(float));
  EXPECT_EQ(SizeOf(DType::kI64), sizeof(std::int64_t));
  EXPECT_EQ(SizeOf(DType::kF64), sizeof(double));
  EXPECT_EQ(Name(DTypeOf<float>), "f32");
  EXPECT_EQ(Name(DTypeOf<double>), "f64");
  EXPECT_EQ(Name(DTypeOf<std::int32_t>), "i32");
  EXPECT_EQ(Name(DTypeOf<std::int64_t>), "i64");
  EXPECT_EQ(Name(DTypeOf<std::uint8_t>), "u8");
}

template <typename T>
concept CanView = requires(std::span<T> span) {
  View(span);
};

// A failure is a compile error.
TEST(Buffer, DoesNotCompileForTypesWithoutDType) {
  static_assert(CanView<float> && CanView<const std::int64_t>);
  static_assert(!CanView<std::uint16_t> && !CanView<const std::uint16_t> && !CanView<char>);
}

TEST(Buffer, CountsElementsAndBytes) {
  std::vector<double> data(3);
  const MutableBuffer view = View(std::span(data));
  EXPECT_EQ(view.count, 3U);
  EXPECT_EQ(view.bytes(), 24U);
  EXPECT_EQ(view.dtype, DType::kF64);
  const ConstBuffer read_only = view;
  EXPECT_EQ(read_only.data, data.data());
  EXPECT_EQ(read_only.bytes(), 24U);
  EXPECT_EQ(View(std::span<const double>(data)).dtype, DType::kF64);
}

}  // namespace
}  // namespace gaccd
