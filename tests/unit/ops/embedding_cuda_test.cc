// Embeddings, positions, the sort of rows by id, and the gradient of an embedding against
// references on the CPU.
#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <utility>

#include "collectives/base/strings.h"
#include "daemon/ops/kernels_cuda.h"
#include "daemon/ops/layout/embedding.h"
#include "daemon/ops/layout/sort_ids_cuda.h"
#include "tests/support/gpu_bench.h"
#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

using EmbeddingCuda = MakerTest;
using Ids = std::vector<std::int32_t>;

constexpr std::int32_t kLargest = std::numeric_limits<std::int32_t>::max();

enum class Which { kEqual, kTwo, kDifferent, kRandom, kOutside };
constexpr Which kAll[] = {Which::kEqual, Which::kTwo, Which::kDifferent, Which::kRandom,
                          Which::kOutside};

// kOutside: half of them, on both sides of [0, rows).
Ids MakeIds(Which which, std::int64_t count, std::int64_t rows) {
  std::mt19937 random(static_cast<unsigned>(count));
  Ids ids;
  for (std::int64_t n = 0; n < count; ++n) {
    const auto any = static_cast<std::int64_t>(random());
    std::int64_t id = any % rows;
    if (which == Which::kEqual) id = rows / 2;
    if (which == Which::kTwo) id = any % 2 == 0 ? 0 : rows - 1;
    if (which == Which::kDifferent) id = (count - n) * 7919 % rows;
    const std::int64_t outside[] = {-1, -kLargest - std::int64_t{1}, rows, kLargest};
    if (which == Which::kOutside && any % 2 == 0) id = outside[any / 2 % 4];
    ids.push_back(static_cast<std::int32_t>(std::min<std::int64_t>(id, kLargest)));
  }
  return ids;
}

TEST_F(EmbeddingCuda, RowsOfTheTable) {
  for (const DType dtype : kFloatTypes) {
    for (const auto& [columns, shift] : {std::pair(33, 0), std::pair(520, 0), std::pair(16, 1)}) {
      const Matrix size{5, columns};
      const Ids ids = MakeIds(Which::kOutside, 300, size.rows);
      const std::vector<float> table =
          RandomValues(1, static_cast<std::size_t>(size.rows * size.columns));
      const GpuArray<float> on_gpu(table, static_cast<std::size_t>(shift));
      const GpuArray<std::int32_t> of_ids(ids);
      const GpuFloats y(dtype, ids.size() * static_cast<std::size_t>(columns));
      EXPECT_OK(RunNode(MakeEmbeddingCuda, Embedding(dtype),
                        {{{{std::ssize(ids)}, DType::kI32}, of_ids.data()},
                         {{{size.rows, size.columns}, DType::kF32}, on_gpu.data()}},
                        {y.data()}));
      const std::vector<float> found = y.Values();
      const std::vector<float> stored = Stored(dtype, table);
      for (std::size_t i = 0; i < found.size(); ++i) {
        const auto row = i / static_cast<std::size_t>(columns);
        const std::int32_t id = ids[row];
        if (id < 0 || id >= size.rows) {
          ASSERT_TRUE(std::isnan(found[i])) << row;
        } else {
          const auto at =
              static_cast<std::size_t>(id * columns) + i % static_cast<std::size_t>(columns);
          ASSERT_EQ(found[i], stored[at]) << Name(dtype) << " " << columns << " element " << i;
        }
      }
    }
  }
}

// More than one launch covers at once, with sequences shorter and longer than that.
TEST_F(EmbeddingCuda, AddsPositions) {
  for (const DType dtype : kFloatTypes) {
    for (const auto& [sequence, count] :
         {std::pair(8, 9000), std::pair(33, 3000), std::pair(70000, 2), std::pair(1, 10)}) {
      for (const std::size_t shift : {0, 1}) {
        const auto elements = static_cast<std::size_t>(sequence) * static_cast<std::size_t>(count);
        const auto length = static_cast<std::size_t>(sequence);
        const std::vector<float> table = RandomValues(1, length + 5);
        std::vector<float> x = Stored(dtype, RandomValues(2, elements));
        const GpuArray<float> positions(table);
        const GpuFloats values(dtype, x, shift);
        EXPECT_OK(RunNode(MakeAddPositionsCuda, AddPositions(sequence),
                          {{{{std::ssize(x), 1}, dtype}, values.data()},
                           {{{std::ssize(table), 1}, DType::kF32}, positions.data()}},
                          {values.data()}));
        for (std::size_t i = 0; i < elements; ++i) x[i] += table[i % length];
        const bool equal = values.Values() == Stored(dtype, x);
        EXPECT_TRUE(equal) << Name(dtype) << " " << sequence << " x " << count << " " << shift;
      }
    }
  }
}

// Scratch of any content.
GpuArray<char> Scratch(std::size_t bytes, char content) {
  return GpuArray<char>(std::vector<char>(bytes + 1, content));
}

TEST_F(EmbeddingCuda, SortsRowsById) {
  for (const std::int64_t rows : {1, 2, 255, 256, 50257, 70000, kLargest}) {
    for (const std::int64_t count : {1, 33, 1025, 5000}) {
      for (const Which which : kAll) {
        if (count == 5000 && which != Which::kRandom) continue;
        const Ids ids = MakeIds(which, count, rows);
        std::vector<IdRow> expected;
        for (std::size_t n = 0; n < ids.size(); ++n) {
          const bool inside = ids[n] >= 0 && ids[n] < rows;
          expected.push_back(static_cast<IdRow>(inside ? ids[n] : rows) << 32 | n);
        }
        std::ranges::sort(expected);
        const GpuArray<std::int32_t> on_gpu(ids);
        const GpuArray<char> scratch = Scratch(SortIdsScratchBytes(count), 0x5a);
        const IdRow* sorted = nullptr;
        EXPECT_OK(EnqueueSortIds(on_, on_gpu.data(), count, rows, scratch.data(), &sorted));
        std::vector<IdRow> found(ids.size());
        ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
        ASSERT_EQ(
            cudaMemcpy(found.data(), sorted, found.size() * sizeof(IdRow), cudaMemcpyDeviceToHost),
            cudaSuccess);
        ASSERT_EQ(found, expected) << rows << " " << count << " " << static_cast<int>(which);
      }
    }
  }
}

TEST_F(EmbeddingCuda, RefusesTooManyIds) {
  const IdRow* sorted = nullptr;
  EXPECT_THAT(
      EnqueueSortIds(on_, nullptr, std::int64_t{1} << 31, 2, nullptr, &sorted),
      IsError(ErrorKind::kConfig, "sort_ids: expected at most 2147483647 ids, found 2147483648"));
}

// Overwrites, then adds the same. Returns the table.
std::vector<float> GradientTwice(const KernelStream& on, DType dtype, const std::vector<float>& dy,
                                 const Ids& ids, Matrix size, char content) {
  const auto count = std::ssize(ids);
  const GpuFloats of_rows(dtype, dy);
  const GpuArray<std::int32_t> on_gpu(ids);
  const GpuArray<float> table(
      std::vector<float>(static_cast<std::size_t>(size.rows * size.columns), 1e9F));
  const GpuArray<char> scratch =
      Scratch(EmbeddingGradientScratchBytes(count, size.columns), content);
  for (const bool add : {false, true}) {
    EXPECT_OK(EnqueueEmbeddingGradient(on, dtype, of_rows.data(), on_gpu.data(), count, size,
                                       table.data(), add, scratch.data()));
  }
  return table.Values();
}

void CheckGradient(const KernelStream& on, DType dtype, Which which, std::int64_t count,
                   Matrix size) {
  SCOPED_TRACE(StrCat(Name(dtype), " ", static_cast<int>(which), ": ", count, " of ", size.rows,
                      " x ", size.columns));
  const Ids ids = MakeIds(which, count, size.rows);
  const auto columns = static_cast<std::size_t>(size.columns);
  const std::vector<float> dy = Stored(dtype, RandomValues(7, ids.size() * columns, 1));
  std::vector<double> expected(static_cast<std::size_t>(size.rows) * columns);
  std::vector<double> sizes(expected.size());
  for (std::size_t i = 0; i < dy.size(); ++i) {
    const std::int32_t id = ids[i / columns];
    if (id < 0 || id >= size.rows) continue;
    const std::size_t to = static_cast<std::size_t>(id) * columns + i % columns;
    expected[to] += 2 * static_cast<double>(dy[i]);
    sizes[to] += 2 * std::abs(static_cast<double>(dy[i]));
  }
  const std::vector<float> found = GradientTwice(on, dtype, dy, ids, size, 0x5a);
  for (std::size_t i = 0; i < found.size(); ++i) {
    ASSERT_NEAR(static_cast<double>(found[i]), expected[i], 4e-7 * sizes[i]) << "element " << i;
  }
  const bool again = found == GradientTwice(on, dtype, dy, ids, size, -1);
  EXPECT_TRUE(again) << "other bits with another content of the scratch memory";
}

TEST_F(EmbeddingCuda, GradientsOfFewRows) {
  for (const DType dtype : kFloatTypes) {
    for (const Which which : kAll) {
      for (const std::int64_t columns : {1, 33}) {
        CheckGradient(on_, dtype, which, 33, {50, columns});
      }
      CheckGradient(on_, dtype, which, 1, {1, 33});
      CheckGradient(on_, dtype, which, 31, {2, 129});
      CheckGradient(on_, dtype, which, 97, {1, 33});
    }
  }
}

TEST_F(EmbeddingCuda, GradientsOfManyRows) {
  for (const Which which : kAll) CheckGradient(on_, DType::kF32, which, 4097, {5000, 33});
  CheckGradient(on_, DType::kBF16, Which::kRandom, 500, {20, 768});
  CheckGradient(on_, DType::kFP16, Which::kRandom, 20000, {50257, 3});
}

// In one chain of f32 the sum would lose four digits.
TEST_F(EmbeddingCuda, SumsFrequentIdInParts) {
  constexpr std::int64_t kRows = 1 << 14;
  constexpr std::int64_t kColumns = 3;
  const std::vector<float> found =
      GradientTwice(on_, DType::kF32, std::vector<float>(kRows * kColumns, 0.1F), Ids(kRows, 1),
                    {3, kColumns}, 0);
  const double sum = 2 * kRows * static_cast<double>(0.1F);
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_NEAR(static_cast<double>(found[i]), i / kColumns == 1 ? sum : 0, 1e-6 * sum) << i;
  }
}

}  // namespace
}  // namespace gaccd
