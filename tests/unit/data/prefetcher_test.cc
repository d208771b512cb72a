#include "daemon/data/prefetcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <limits>
#include <new>
#include <random>
#include <semaphore>

#include "daemon/data/dataset.h"
#include "tests/support/slow_data.h"
#include "tests/support/status_matchers.h"

namespace {
std::atomic<std::int64_t> allocations{0};
}
#ifndef GACCD_SANITIZED  // sanitizers have their own operator new
// Counts the allocations of the whole program. Not inlined: g++ would warn of a free() that does
// not match a new.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  void* memory = std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
#endif

namespace gaccd {
namespace {

// Sample i has the features i, i + 0.5 and the label i.
class CountingDataset final : public Dataset {
 public:
  [[nodiscard]] std::int64_t size() const override { return 1 << 20; }
  [[nodiscard]] const SampleSpec& spec() const override { return spec_; }
  void Gather(std::span<const std::int64_t> indices, const BatchView& out) const override {
    for (std::size_t i = 0; i < indices.size(); ++i) {
      out.tensor<float>(0)[2 * i] = static_cast<float>(indices[i]);
      out.tensor<float>(0)[2 * i + 1] = static_cast<float>(indices[i]) + 0.5F;
      out.tensor<std::int32_t>(1)[i] = static_cast<std::int32_t>(indices[i]);
    }
  }

 private:
  SampleSpec spec_ = LabelledSample({2}, 1 << 30);
};

// Batch b of `batches` holds b % 4 samples, from sample b on.
class RaggedSource final : public IndexSource {
 public:
  explicit RaggedSource(std::int64_t batches) : batches_(batches) {}
  [[nodiscard]] std::int64_t max_samples() const override { return 3; }
  std::int64_t Next(std::span<std::int64_t> out) override {
    if (next_ == batches_) return kEnd;
    const std::int64_t samples = next_ % 4;
    for (std::int64_t i = 0; i < samples; ++i) out[static_cast<std::size_t>(i)] = next_ + i;
    ++next_;
    return samples;
  }

 private:
  std::int64_t batches_;
  std::int64_t next_ = 0;
};

std::unique_ptr<Prefetcher> Started(const Dataset& dataset, std::int64_t batches, int slots,
                                    int held = 0) {
  return ValueOrThrow(Prefetcher::Start(dataset, std::make_unique<RaggedSource>(batches),
                                        {.slots = slots, .held = held}));
}

void ExpectBatch(const BatchView* view, std::int64_t batch) {
  ASSERT_NE(view, nullptr);
  ASSERT_EQ(view->samples, batch % 4);
  for (std::int64_t i = 0; i < view->samples; ++i) {
    ASSERT_EQ(view->ids[i], batch + i);
    ASSERT_EQ(view->tensor<std::int32_t>(1)[i], batch + i);
    ASSERT_EQ(view->tensor<float>(0)[2 * i], static_cast<float>(batch + i));
    ASSERT_EQ(view->tensor<float>(0)[2 * i + 1], static_cast<float>(batch + i) + 0.5F);
  }
}

TEST(PrefetcherTest, GivesEveryBatchInOrderForEveryRingSize) {
  const CountingDataset dataset;
  for (const int slots : {2, 4, 8, 64}) {
    for (const std::int64_t batches : {0, 1, 2, 3, 7, 8, 9, 500}) {
      const auto prefetcher = Started(dataset, batches, slots);
      for (std::int64_t b = 0; b < batches; ++b) ExpectBatch(prefetcher->Next(), b);
      EXPECT_EQ(prefetcher->Next(), nullptr);
      EXPECT_EQ(prefetcher->Next(), nullptr);
    }
  }
}

TEST(PrefetcherTest, ReportsLackOfMemory) {
  class NoMemoryDataset final : public Dataset {
   public:
    [[nodiscard]] std::int64_t size() const override { return 1; }
    [[nodiscard]] const SampleSpec& spec() const override { return spec_; }
    void Gather(std::span<const std::int64_t>, const BatchView&) const override {
      throw std::bad_alloc();
    }
    [[nodiscard]] std::int64_t gather_bytes(std::int64_t samples) const override {
      return samples << 40;
    }

   private:
    SampleSpec spec_ = LabelledSample({2}, 2);
  };
  const NoMemoryDataset dataset;
  const auto prefetcher = Started(dataset, 2, 2);
  EXPECT_NE(prefetcher->Next(), nullptr);
  EXPECT_NE(prefetcher->Next(), nullptr);
  EXPECT_TRUE(prefetcher->status().lacks_memory());
  EXPECT_THAT(prefetcher->status().message(), testing::HasSubstr("the samples of a micro-batch"));
}

// Loops that are faster than the thread, slower, and now this, now that.
TEST(PrefetcherTest, KeepsOrderAtAnySpeed) {
  const CountingDataset dataset;
  std::mt19937 random(1);
  for (const int pause : {0, 1, 2}) {
    const auto prefetcher = Started(dataset, 3000, 4);
    for (std::int64_t b = 0; b < 3000; ++b) {
      ExpectBatch(prefetcher->Next(), b);
      if (pause == 1 && b % 10 == 0) std::this_thread::sleep_for(std::chrono::microseconds(50));
      if (pause == 2 && random() % 4 == 0) std::this_thread::yield();
    }
    EXPECT_EQ(prefetcher->Next(), nullptr);
  }
}

TEST(PrefetcherTest, StopsAtAnyTime) {
  const CountingDataset dataset;
  std::mt19937 random(2);
  for (int run = 0; run < 2000; ++run) {
    const auto prefetcher = Started(dataset, run % 3 == 0 ? 6 : 1 << 20, 4);
    const auto take = static_cast<std::int64_t>(random() % 7);
    for (std::int64_t b = 0; b < take; ++b) {
      const BatchView* view = prefetcher->Next();
      if (view != nullptr) ExpectBatch(view, b);
    }
    if (random() % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

TEST(PrefetcherTest, BatchIsValidUntilNextCall) {
  const CountingDataset dataset;
  const auto prefetcher = Started(dataset, 1 << 20, 2);
  for (std::int64_t b = 0; b < 20; ++b) {
    const BatchView* view = prefetcher->Next();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // the thread has filled what it may
    ExpectBatch(view, b);
  }
}

TEST(PrefetcherTest, IsReadyIfNextDoesNotWait) {
  const CountingDataset counting;
  std::binary_semaphore may_read{0};
  const tests::HeldData held(counting, [&] { may_read.acquire(); });
  const auto prefetcher = Started(held, 2, 4);  // the first batch is empty: nothing to read
  const auto wait = [&] {
    while (!prefetcher->ready()) std::this_thread::yield();
  };
  wait();
  ExpectBatch(prefetcher->Next(), 0);
  EXPECT_FALSE(prefetcher->ready());
  may_read.release();
  wait();
  ExpectBatch(prefetcher->Next(), 1);
  wait();  // for the end
  EXPECT_EQ(prefetcher->Next(), nullptr);
}

// What a device reads late is not overwritten: the last `held` + 1 batches keep their values.
TEST(PrefetcherTest, HeldBatchesStayValid) {
  const CountingDataset dataset;
  for (const auto& [slots, held] : {std::pair(2, 0), {4, 1}, {4, 2}, {8, 3}, {16, 3}, {8, 6}}) {
    const auto prefetcher = Started(dataset, 200, slots, held);
    std::vector<BatchView> views;
    for (std::int64_t b = 0; b < 200; ++b) {
      views.push_back(*prefetcher->Next());
      if (b % 7 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      for (std::int64_t old = std::max<std::int64_t>(0, b - held); old <= b; ++old) {
        ExpectBatch(&views[static_cast<std::size_t>(old)], old);
      }
    }
    EXPECT_EQ(prefetcher->Next(), nullptr);
  }
}

TEST(PrefetcherTest, UsesGivenMemory) {
  const CountingDataset dataset;
  alignas(64) std::byte memory[4 * (64 + 64 + 64)];
  std::size_t asked = 0;
  const auto prefetcher = ValueOrThrow(Prefetcher::Start(
      dataset, std::make_unique<RaggedSource>(20), {.slots = 4, .memory = [&](std::size_t bytes) {
                                                      asked = bytes;
                                                      return Result<std::byte*>(memory);
                                                    }}));
  EXPECT_EQ(asked, sizeof memory);
  for (std::int64_t b = 0; b < 20; ++b) {
    const BatchView* view = prefetcher->Next();
    ExpectBatch(view, b);
    EXPECT_EQ(view->tensors[0], memory + 192 * (b % 4));
  }
  const auto refused =
      Prefetcher::Start(dataset, std::make_unique<RaggedSource>(20), {.memory = [](std::size_t) {
                          return Result<std::byte*>(Status(ErrorKind::kOs, "none left"));
                        }});
  EXPECT_THAT(refused, HasMessage("none left"));
}

TEST(PrefetcherTest, DoesNotAllocateInLoop) {
#ifdef GACCD_SANITIZED
  GTEST_SKIP() << "sanitizers have their own operator new: nothing is counted";
#endif
  const CountingDataset dataset;
  const auto prefetcher = Started(dataset, 1 << 20, 8);
  for (int b = 0; b < 100; ++b) (void)prefetcher->Next();
  const std::int64_t before = allocations.load();
  for (int b = 0; b < 10'000; ++b) (void)prefetcher->Next();
  EXPECT_EQ(allocations.load(), before);
}

TEST(PrefetcherTest, RingIsAlignedAndCounted) {
  const CountingDataset dataset;
  const auto prefetcher = Started(dataset, 100, 4);
  for (int b = 0; b < 8; ++b) {
    for (const void* tensor : prefetcher->Next()->tensors) {
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor) % 64, 0U);
    }
  }
  // 3 x 2 floats, 3 labels and 3 ids, each rounded up.
  EXPECT_EQ(prefetcher->memory_bytes(), 4U * (64 + 64 + 64));
}

TEST(PrefetcherTest, RankWithoutSamplesEndsAtOnce) {
  const CountingDataset dataset;
  const auto prefetcher =
      Prefetcher::Start(dataset, std::make_unique<EvalIndices>(MakeEvalShard(3, 3, 4), 8));
  ASSERT_TRUE(prefetcher.ok());
  EXPECT_EQ((*prefetcher)->Next(), nullptr);
}

class HugeSource final : public IndexSource {
 public:
  [[nodiscard]] std::int64_t max_samples() const override {
    return std::numeric_limits<std::int64_t>::max() / 2;
  }
  std::int64_t Next(std::span<std::int64_t> /*out*/) override { return kEnd; }
};

TEST(PrefetcherTest, RefusesInvalidRing) {
  const CountingDataset dataset;
  for (const int slots : {-8, 0, 1, 3, 12}) {
    EXPECT_THAT(Prefetcher::Start(dataset, std::make_unique<RaggedSource>(1), {.slots = slots}),
                IsError(ErrorKind::kConfig, std::to_string(slots)));
  }
  EXPECT_THAT(Prefetcher::Start(dataset, std::make_unique<HugeSource>()),
              HasMessage(testing::HasSubstr("does not fit")));
}

}  // namespace
}  // namespace gaccd
