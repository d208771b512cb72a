#include "tests/standin/simt.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <numeric>
#include <vector>

#include "tests/sanitized.h"
#include "tests/standin/test_kernels.h"
#include "tests/standin/test_support.h"

namespace gaccd::standin_test {
namespace {

using SimtTest = StandInTest;

std::vector<float> Floats(int n) {
  std::vector<float> values(static_cast<std::size_t>(n));
  for (int i = 0; i < n; ++i) values[static_cast<std::size_t>(i)] = static_cast<float>(i % 17 - 8);
  return values;
}

TEST_F(SimtTest, ElementwiseWithIncompleteLastBlock) {
  const Stream stream;
  const OnDevice<float> x(Floats(1000));
  const OnDevice<float> y(std::vector<float>(1000, 1.0F));
  ASSERT_TRUE(Axpy(stream, 1000, 2.0F, x.data(), y.data()).ok());
  EXPECT_CUDA(cudaStreamSynchronize(stream));
  const std::vector<float> in = Floats(1000);
  const std::vector<float> out = y.Values();
  for (std::size_t i = 0; i < 1000; ++i) EXPECT_EQ(out[i], 1.0F + 2.0F * in[i]);
}

TEST_F(SimtTest, BlockReductionForEveryBlockSizeAndOrder) {
  const Stream stream;
  const std::vector<float> in = Floats(5000);
  const OnDevice<float> x(in);
  for (const int delay_us : {0, 1, 2, 3, 4, 5}) {  // with delays, some kernels run backwards
    standin::SetDelays(static_cast<std::uint64_t>(delay_us), delay_us);
    for (const unsigned threads : {32U, 64U, 256U, 1024U}) {
      const OnDevice<float> sums(std::vector<float>(3));
      ASSERT_TRUE(BlockSums(stream, 5000, x.data(), sums.data(), 3, threads).ok());
      EXPECT_CUDA(cudaStreamSynchronize(stream));
      const std::vector<float> out = sums.Values();
      EXPECT_EQ(out[0] + out[1] + out[2], std::accumulate(in.begin(), in.end(), 0.0F)) << threads;
    }
  }
}

TEST_F(SimtTest, LastBlockSumsOtherBlocks) {
  const Stream stream;
  const std::vector<float> in = Floats(3000);
  const OnDevice<float> x(in);
  const OnDevice<float> partial(std::vector<float>(100));
  const OnDevice<unsigned> done(std::vector<unsigned>(1));
  const OnDevice<float> sum(std::vector<float>(1));
  for (int round = 0; round < 3; ++round) {  // the counter comes back to 0 by itself
    ASSERT_TRUE(
        SumByLastBlock(stream, 3000, x.data(), partial.data(), done.data(), sum.data(), 100).ok());
    EXPECT_CUDA(cudaStreamSynchronize(stream));
    EXPECT_EQ(sum.Values()[0], std::accumulate(in.begin(), in.end(), 0.0F));
    EXPECT_EQ(done.Values()[0], 0U);
  }
}

TEST_F(SimtTest, SharedMemoryIsVisibleToBlock) {
  const Stream stream;
  std::vector<int> in(1024);
  std::iota(in.begin(), in.end(), 0);
  const OnDevice<int> x(in);
  const OnDevice<int> out(std::vector<int>(1024));
  ASSERT_TRUE(Reverse(stream, 1024, x.data(), out.data()).ok());
  EXPECT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_EQ(out.Values(), std::vector<int>(in.rbegin(), in.rend()));
}

TEST_F(SimtTest, VotesAndShufflesWithinWarp) {
  const Stream stream;
  std::vector<int> in(64);
  in[3] = 1;
  in[33] = 7;
  const OnDevice<int> x(in);
  const OnDevice<unsigned> out(std::vector<unsigned>(128));
  ASSERT_TRUE(Votes(stream, 64, x.data(), out.data()).ok());
  EXPECT_CUDA(cudaStreamSynchronize(stream));
  const std::vector<unsigned> values = out.Values();
  EXPECT_EQ(values[0], 1U << 3);
  EXPECT_EQ(values[63], 1U << 1);
  EXPECT_EQ(values[64 + 2], 1U);
  EXPECT_EQ(values[64 + 31], 0U) << "lane 31 must not see the next warp's 0th lane";
  EXPECT_EQ(values[64 + 32], 7U);
}

TEST_F(SimtTest, CudaBf16WorksOnHost) {
  const Stream stream;
  const OnDevice<std::uint16_t> x(std::vector<std::uint16_t>(32, 0x3fc0));  // 1.5
  const OnDevice<std::uint16_t> out(std::vector<std::uint16_t>(32));
  ASSERT_TRUE(DoubleBf16(stream, 32, x.data(), out.data()).ok());
  EXPECT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_EQ(out.Values()[31], 0x4040);  // 3
}

using SimtDeathTest = SimtTest;

// Runs one forbidden kernel to its end.
void RunBad(Status (*kernel)(cudaStream_t, int*)) {
  const Stream stream;
  const OnDevice<int> out(std::vector<int>(64));
  (void)kernel(stream, out.data());
  (void)cudaStreamSynchronize(stream);
}

TEST_F(SimtDeathTest, DetectsDivergentBarriersAndWarpOperations) {
  EXPECT_DEATH(RunBad(&BarrierForSome), "'barrier for some', block 0: .*40 wait at __syncthreads");
  EXPECT_DEATH(RunBad(&TwoBarriers), "another thread at that of .*test_kernels.cu");
  EXPECT_DEATH(RunBad(&ShuffleOfHalfAWarp), "16 wait at a warp operation .*16 ended");
  EXPECT_DEATH(RunBad(&ShuffleAndVote), "a vote of line .* another lane .* a shuffle");
  EXPECT_DEATH(RunBad(&SmallMask), "a shuffle with mask 65535 instead of all");
  EXPECT_DEATH(RunBad(&DeepRecursion), "");
}

TEST_F(SimtDeathTest, DetectsCountedBlocksWithoutFences) {
  const auto sum = [](LastBlockFences fences) {
    const Stream stream;
    const OnDevice<float> x(Floats(300));
    const OnDevice<float> partial(std::vector<float>(3));
    const OnDevice<unsigned> done(std::vector<unsigned>(1));
    const OnDevice<float> out(std::vector<float>(1));
    (void)SumByLastBlock(stream, 300, x.data(), partial.data(), done.data(), out.data(), 3, fences);
    (void)cudaStreamSynchronize(stream);
  };
  EXPECT_DEATH(sum(LastBlockFences::kNoneBefore), "block 0, .* an atomic operation without __thre");
  EXPECT_DEATH(sum(LastBlockFences::kNoneAfter), "block 2, .* 128 of its threads did not call __t");
}

TEST_F(SimtDeathTest, DetectsMisalignedVectors) {
  const auto run = [](bool write) {
    const Stream stream;
    const OnDevice<float> values(std::vector<float>(8));
    (void)MisalignedVector(stream, values.data(), write);
    (void)cudaStreamSynchronize(stream);
  };
  EXPECT_DEATH(run(false), "'misaligned vector', .* not a multiple of its size");
  EXPECT_DEATH(run(true), "'misaligned vector', .* not a multiple of its size");
}

TEST_F(SimtTest, RefusesLaunchesThatNoGpuAccepts) {
  const Stream stream;
  const OnDevice<float> x(std::vector<float>(32));
  for (const unsigned blocks : {0U, 0x80000000U}) {
    EXPECT_FALSE(BlockSums(stream, 32, x.data(), x.data(), blocks, 32).ok()) << blocks;
  }
  EXPECT_FALSE(BlockSums(stream, 32, x.data(), x.data(), 1, 1056).ok());
}

TEST_F(SimtDeathTest, DetectsHostPointers) {
  std::vector<float> host(32);
  const Stream stream;
  const OnDevice<float> x(host);
  EXPECT_DEATH((void)Axpy(stream, 32, 1.0F, host.data(), x.data()), "gets ordinary host memory");
  float* freed = OnDevice<float>(host).data();
  EXPECT_DEATH((void)Axpy(stream, 32, 1.0F, freed, x.data()), "'axpy' uses freed device memory");
  EXPECT_DEATH(
      {
        (void)BeyondTheEnd(stream, 64, x.data());
        (void)cudaStreamSynchronize(stream);
      },
      "");
}

TEST_F(SimtTest, FastEnoughForTraining) {
  const Stream stream;
  const OnDevice<float> x(Floats(100 * 1024));
  const OnDevice<float> sums(std::vector<float>(100));
  ASSERT_TRUE(BlockSums(stream, 100 * 1024, x.data(), sums.data(), 100, 1024).ok());  // fibers made
  EXPECT_CUDA(cudaStreamSynchronize(stream));
  // Of several, the fastest: a busy machine may stop any of them.
  constexpr double kEnough = 0.5;
  double least_s = std::numeric_limits<double>::max();
  for (int i = 0; i < 20 && least_s > kEnough; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    ASSERT_TRUE(BlockSums(stream, 100 * 1024, x.data(), sums.data(), 100, 1024).ok());
    EXPECT_CUDA(cudaStreamSynchronize(stream));
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    least_s = std::min(least_s, taken.count());
    if (tests::kSanitized) break;
  }
  RecordProperty("seconds_for_100k_threads_with_barriers", std::to_string(least_s));
  EXPECT_TRUE(least_s <= kEnough || tests::kSanitized) << least_s << " s";
}

}  // namespace
}  // namespace gaccd::standin_test
