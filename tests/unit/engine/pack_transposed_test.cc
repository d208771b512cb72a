#include "daemon/device/cpu/pack_transposed.h"

#include <gtest/gtest.h>

#include <dnnl.hpp>
#include <numeric>
#include <vector>

namespace gaccd {
namespace {

std::vector<float> Counted(std::int64_t elements) {
  std::vector<float> values(static_cast<std::size_t>(elements));
  std::iota(values.begin(), values.end(), 1.0F);
  return values;
}

// By the formula of the header.
TEST(PackTransposed, PutsEveryElementInItsPlace) {
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
TEST(PackTransposed, IsWhatTheLibraryPacks) {
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

}  // namespace
}  // namespace gaccd
