#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <dnnl.hpp>
#include <limits>
#include <numeric>
#include <vector>

#include "daemon/device/cpu/cpu_context.h"
#include "daemon/device/cpu/onednn.h"
#include "daemon/device/cpu/packed_weights.h"
#include "daemon/tensor/float_types.h"
#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

std::vector<float> Counted(std::int64_t elements) {
  std::vector<float> values(static_cast<std::size_t>(elements));
  std::iota(values.begin(), values.end(), 1.0F);
  return values;
}

// By the formula of the header.
TEST(PackTransposed, PlacesEveryElement) {
  const std::int64_t n = 128;
  const std::int64_t k = 48;
  const std::vector<float> weight = Counted(n * k);
  std::vector<float> packed(weight.size());
  PackTransposed(weight.data(), n, k, packed.data());
  for (std::int64_t i = 0; i < k; ++i) {
    for (std::int64_t j = 0; j < n; ++j) {
      const std::int64_t at = ((j / 64) * (k / 16) + i / 16) * 1024 + (i % 16) * 64 + j % 64;
      ASSERT_EQ(packed[static_cast<std::size_t>(at)], weight[static_cast<std::size_t>(j * k + i)])
          << i << ", " << j;
    }
  }
}

// The layout is oneDNN's: if a new version packs otherwise, this says so.
TEST(PackTransposed, EqualsLibraryPacking) {
  using Tag = dnnl::memory::format_tag;
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  dnnl::stream stream(engine);
  for (const auto& [n, k] : {std::pair<std::int64_t, std::int64_t>{64, 16}, {512, 784}}) {
    std::vector<float> weight = Counted(n * k);
    std::vector<float> expected(weight.size());
    std::vector<float> packed(weight.size());
    const auto type = dnnl::memory::data_type::f32;
    dnnl::memory from({{k, n}, type, Tag::ba}, engine, weight.data());
    dnnl::memory to({{k, n}, type, Tag::BA16a64b}, engine, expected.data());
    dnnl::reorder(from, to).execute(stream, from, to);
    PackTransposed(weight.data(), n, k, packed.data());
    EXPECT_EQ(packed, expected) << n << " x " << k;
  }
}

// Values that round up, down and to even, and those that are none.
std::vector<float> Uneven(std::int64_t elements) {
  std::vector<float> values(static_cast<std::size_t>(elements));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = (i % 2 == 0 ? 1.0F : -1.0F) * std::ldexp(1.0F + 0x1p-9F * static_cast<float>(i), 3);
  }
  values[1] = std::numeric_limits<float>::quiet_NaN();
  values[2] = std::bit_cast<float>(0x7f800001U);  // a NaN only in the half that is dropped
  values[3] = std::numeric_limits<float>::infinity();
  values[4] = std::numeric_limits<float>::max();
  return values;
}

// By the formula of the header; in two pieces where there are more rows than one takes.
TEST(PackBf16, RoundsAndPlacesEveryElement) {
  for (const bool transposed : {false, true}) {
    for (const std::int64_t k : {16, 32, 80}) {
      const std::int64_t n = 128;
      const std::int64_t blocks = (k + 31) / 32;
      const std::vector<float> weight = Uneven(n * k);
      std::vector<std::uint16_t> packed(static_cast<std::size_t>(n * blocks * 32), 0xffff);
      const std::int64_t stored_rows = transposed ? n : k;
      PackBf16(weight.data(), transposed, k, n, 0, std::min<std::int64_t>(64, stored_rows),
               packed.data());
      if (stored_rows > 64) {
        PackBf16(weight.data(), transposed, k, n, 64, stored_rows, packed.data());
      }
      for (std::int64_t i = 0; i < 32 * blocks; ++i) {
        for (std::int64_t j = 0; j < n; ++j) {
          const std::int64_t at =
              ((j / 64) * blocks + i / 32) * 2048 + (i % 32 / 2) * 128 + (j % 64) * 2 + i % 2;
          const std::int64_t from = transposed ? j * k + i : i * n + j;
          const std::uint16_t expected =
              i < k ? ToBf16(weight[static_cast<std::size_t>(from)]).bits : std::uint16_t{0};
          ASSERT_EQ(packed[static_cast<std::size_t>(at)], expected)
              << i << ", " << j << " of " << k << (transposed ? " transposed" : "");
        }
      }
    }
  }
}

// The step of the optimiser tells how far it has come: nowhere near the end of a block, maybe.
TEST(PackedWeights, PiecesEqualWhole) {
  using Tag = dnnl::memory::format_tag;
  using Type = dnnl::memory::data_type;
  const std::int64_t rows = 192;  // as stored
  const std::int64_t columns = 128;
  for (const auto& [stored, packed] : {std::pair{Tag::ba, std::pair{Type::f32, Tag::BA16a64b}},
                                       {Tag::ab, {Type::bf16, Tag::BA16a64b2a}},
                                       {Tag::ba, {Type::bf16, Tag::BA16a64b2a}}}) {
    const auto context = ValueOrThrow(CpuContext::Create());
    const std::vector<float> weight = Counted(rows * columns);
    const dnnl::memory::dims dims =
        stored == Tag::ba ? dnnl::memory::dims{columns, rows} : dnnl::memory::dims{rows, columns};
    const dnnl::memory::desc layout(dims, packed.first, packed.second);
    PackedWeights& weights = context->packed_weights();
    const dnnl::memory memory = weights.Get(weight.data(), {dims, Type::f32, stored}, layout);
    weights.RepackUpTo(weight.data() + weight.size());  // without memory for the copy: nothing
    ASSERT_OK(weights.Repack());
    auto* const begin = static_cast<std::byte*>(memory.get_data_handle());
    const std::vector<std::byte> whole(begin, begin + layout.get_size());
    std::fill_n(begin, layout.get_size(), std::byte{0});
    for (const std::int64_t row : {5, 64, 70, 150, 191}) {
      weights.RepackUpTo(weight.data() + row * columns + 3);
    }
    ASSERT_OK(weights.Repack());
    EXPECT_EQ(whole, std::vector<std::byte>(begin, begin + layout.get_size()));
  }
}

// As for an evaluation whose products are prepared after the first update.
TEST(PackedWeights, CopiesAddedLaterGetMemoryInTheNextRepack) {
  const dnnl::memory::desc plain({48, 128}, dnnl::memory::data_type::f32,
                                 dnnl::memory::format_tag::ba);
  const dnnl::memory::desc layout({48, 128}, dnnl::memory::data_type::f32,
                                  dnnl::memory::format_tag::BA16a64b);
  const auto context = ValueOrThrow(CpuContext::Create());
  PackedWeights& weights = context->packed_weights();
  const std::vector<float> first = Counted(48 * 128);
  const std::vector<float> second = first;
  const auto values = [&](const dnnl::memory& copy) {
    const auto* const begin = static_cast<const float*>(copy.get_data_handle());
    return std::vector<float>(begin, begin + first.size());
  };
  const dnnl::memory early = weights.Get(first.data(), plain, layout);
  ASSERT_OK(weights.Repack());
  const void* const place = early.get_data_handle();
  const dnnl::memory late = weights.Get(second.data(), plain, layout);
  ASSERT_OK(weights.Repack());
  EXPECT_EQ(early.get_data_handle(), place);
  ASSERT_NE(late.get_data_handle(), nullptr);
  EXPECT_NE(late.get_data_handle(), place);
  EXPECT_EQ(values(late), values(early));
}

// The layout is oneDNN's: if a new version packs otherwise, this says so.
TEST(PackBf16, EqualsLibraryPacking) {
  if (DetectCpuBf16() == CpuBf16::kNone) GTEST_SKIP() << "this CPU has " << Name(DetectCpuBf16());
  using Tag = dnnl::memory::format_tag;
  using Type = dnnl::memory::data_type;
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  dnnl::stream stream(engine);
  for (const auto& [n, k] : {std::pair<std::int64_t, std::int64_t>{64, 32}, {512, 784}}) {
    std::vector<float> weight = Counted(n * k);
    for (const Tag tag : {Tag::ab, Tag::ba}) {
      dnnl::memory from({{k, n}, Type::f32, tag}, engine, weight.data());
      const dnnl::memory::desc layout({k, n}, Type::bf16, Tag::BA16a64b2a);
      std::vector<std::uint16_t> expected(layout.get_size() / 2);
      std::vector<std::uint16_t> packed(expected.size());
      dnnl::memory to(layout, engine, expected.data());
      dnnl::reorder(from, to).execute(stream, from, to);
      PackBf16(weight.data(), tag == Tag::ba, k, n, 0, tag == Tag::ba ? n : k, packed.data());
      EXPECT_EQ(packed, expected) << n << " x " << k;
    }
  }
}

}  // namespace
}  // namespace gaccd
