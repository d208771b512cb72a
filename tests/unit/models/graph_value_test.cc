// Where the values of exported networks are in memory.
#include "daemon/models/graph_value.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

// Where the elements of a value are in memory, in PyTorch's order of them.
std::vector<std::int64_t> Places(const GraphValue& value, std::int64_t samples) {
  Shape strides(value.memory.size());
  std::int64_t elements = 1;
  for (std::size_t piece = value.memory.size(); piece-- > 0;) {
    strides[piece] = elements;
    elements *= ActualSize(value.memory[piece], samples);
  }
  std::vector<std::int64_t> places = {0};
  for (std::size_t i = 0; i < value.rank(); ++i) {
    std::int64_t size = 1;
    for (const std::size_t piece : value.pieces[i]) {
      std::vector<std::int64_t> next;
      size *= ActualSize(value.memory[piece], samples);
      for (const std::int64_t place : places) {
        for (std::int64_t j = 0; j < ActualSize(value.memory[piece], samples); ++j) {
          next.push_back(place + j * strides[piece]);
        }
      }
      places = std::move(next);
    }
    EXPECT_EQ(size, ActualSize(value.sizes[i], samples));
  }
  return places;
}

TEST(GraphValueTest, ViewsKeepElementOrder) {
  std::mt19937 random(3);
  const std::vector<Shape> shapes = {{-1, 2, 3, 4}, {-1, 6, 4},    {-1, 24},       {-2, 12},
                                     {-6, 4},       {-1, 1, 6, 4}, {-1, 2, 12, 1}, {-1, 1, 24, 1},
                                     {24, -1},      {2, -3, 4}};
  int views = 0;
  for (int round = 0; round < 3000; ++round) {
    const Shape& sizes = shapes[random() % shapes.size()];
    DimensionOrder order = RowMajor(sizes.size());
    if (round % 3 > 0) std::ranges::shuffle(order, random);
    GraphValue value = InMemoryOrder(1, sizes, order);
    for (int step = 0; step < 3; ++step) {
      const auto view = MakeView(value, shapes[random() % shapes.size()]);
      if (!view) continue;
      ++views;
      EXPECT_EQ(Places(*view, 3), Places(value, 3))
          << ToString(value.sizes) << ToString(view->sizes);
      DimensionOrder dims = RowMajor(view->rank());
      std::ranges::shuffle(dims, random);
      value = PermuteDimensions(*view, dims);
    }
  }
  EXPECT_GT(views, 1000);
}

TEST(GraphValueTest, EveryViewOfRowMajorValueNeedsNoCopy) {
  const GraphValue value = InMemoryOrder(1, {-1, 2, 3, 4}, RowMajor(4));
  for (const Shape& sizes : {Shape{-1, 24}, Shape{-6, 4}, Shape{-2, 3, 1, 4}, Shape{-1, 2, 12}}) {
    EXPECT_TRUE(MakeView(value, sizes)) << ToString(sizes);
  }
  for (const Shape& sizes : {Shape{-1, 25}, Shape{24}, Shape{-24, -1}, Shape{}, Shape{-48}}) {
    EXPECT_FALSE(MakeView(value, sizes)) << ToString(sizes);
  }
}

TEST(GraphValueTest, PermutedDimensionsStayInPlace) {
  const DimensionOrder exchanged = {0, 2, 1, 3};
  const GraphValue rows = InMemoryOrder(1, {-1, 5, 8}, RowMajor(3));
  const GraphValue heads = PermuteDimensions(*MakeView(rows, {-1, 5, 2, 4}), exchanged);
  EXPECT_EQ(heads.sizes, (Shape{-1, 2, 5, 4}));
  EXPECT_TRUE(HasMemoryOrder(heads, exchanged));
  EXPECT_EQ(MemoryOrder(heads), exchanged);
  EXPECT_FALSE(HasMemoryOrder(heads, RowMajor(4)));
  const auto back = MakeView(PermuteDimensions(heads, exchanged), {-1, 5, 8});
  ASSERT_TRUE(back);
  EXPECT_TRUE(HasMemoryOrder(*back, RowMajor(3)));
}

// As nn.MultiheadAttention does it: rows first, then samples times heads.
TEST(GraphValueTest, DimensionsMayHaveDistantPieces) {
  const GraphValue rows = PermuteDimensions(InMemoryOrder(1, {-1, 5, 8}, RowMajor(3)), {1, 0, 2});
  const auto by_head = MakeView(rows, {5, -2, 4});
  ASSERT_TRUE(by_head);
  EXPECT_FALSE(MemoryOrder(*by_head));
  const auto heads = MakeView(PermuteDimensions(*by_head, {1, 0, 2}), {-1, 2, 5, 4});
  ASSERT_TRUE(heads);
  EXPECT_TRUE(HasMemoryOrder(*heads, {0, 2, 1, 3}));
}

TEST(GraphValueTest, RowsKeepPosition) {
  const GraphValue rows = PermuteDimensions(InMemoryOrder(1, {-1, 5, 8}, RowMajor(3)), {1, 0, 2});
  const auto merged = MakeView(rows, {-5, 8});
  ASSERT_TRUE(merged);
  const auto wider = WithLast(*merged, 12);
  ASSERT_TRUE(wider);
  EXPECT_EQ(wider->memory, (Shape{-1, 5, 12}));
  const auto apart = MakeView(*wider, {5, -1, 12});
  ASSERT_TRUE(apart);
  EXPECT_TRUE(HasMemoryOrder(PermuteDimensions(*apart, {1, 0, 2}), RowMajor(3)));
  EXPECT_FALSE(WithLast(PermuteDimensions(rows, {0, 2, 1}), 4));
}

TEST(GraphValueTest, PartsAreColumns) {
  const GraphValue three = *MakeView(InMemoryOrder(1, {-1, 5, 24}, RowMajor(3)), {-1, 5, 3, 8});
  const auto second = MakePart(PermuteDimensions(three, {2, 0, 1, 3}), 0, 1, 2);
  ASSERT_TRUE(second);
  EXPECT_EQ(second->part->columns, 24);
  EXPECT_EQ(second->part->first, 8);
  EXPECT_EQ(second->part->width, 8);
  EXPECT_EQ(second->sizes, (Shape{1, -1, 5, 8}));
  EXPECT_FALSE(MakePart(*second, 3, 0, 4));                    // of a part
  EXPECT_FALSE(MakePart(three, 0, 0, 1));                      // of the samples
  EXPECT_EQ(MakePart(three, 1, 2, 4)->part->columns, 5 * 24);  // rows of every sample
}

TEST(GraphValueTest, ImagesBecomeRowMajorByOneExchange) {
  const DimensionOrder images = {0, 2, 3, 1};
  const auto exchange = ExchangeTo(InMemoryOrder(1, {-1, 3, 5, 4}, images), RowMajor(4));
  ASSERT_TRUE(exchange);
  EXPECT_EQ(exchange->outer, -1);
  EXPECT_EQ(exchange->first, 20);
  EXPECT_EQ(exchange->second, 3);
  EXPECT_TRUE(HasMemoryOrder(InMemoryOrder(1, {-1, 3, 1, 1}, images), RowMajor(4)));
  EXPECT_FALSE(ExchangeTo(InMemoryOrder(1, {-1, 2, 5, 4}, {0, 2, 1, 3}), RowMajor(4)));
}

}  // namespace
}  // namespace gaccd
