// A thread that reads micro-batches ahead of the training loop, into a ring of `slots` batches that
// is allocated once.
//
// The thread often shares its core with the loop, so it works in bursts: it sleeps until half of
// the slots that are not held are free and then fills them all. That is one wake-up per (slots -
// held) / 2 micro-batches; otherwise Next() only needs atomic operations.
//
// Next() and the destructor must be called by one thread. The data set must outlive the Prefetcher.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "collectives/base/result.h"
#include "daemon/data/dataset.h"
#include "daemon/data/index_source.h"

namespace gaccd {

using RingMemory = std::function<Result<std::byte*>(std::size_t bytes)>;

struct PrefetcherOptions {
  static constexpr int kSlots = 8;
  int slots = kSlots;
  // The number of further calls of Next() after which a batch is still valid: for devices that read
  // it while the loop continues.
  int held = 0;
  // Allocates the ring: at least `bytes`, aligned to 64, that outlive the prefetcher. If it is null
  // or returns null, the prefetcher allocates the ring itself.
  RingMemory memory = nullptr;
  // Ascending: each micro-batch is cut to the smallest of these lengths that fits its samples; not
  // cut if none fits. REQUIRES: the data set's cuts, or empty.
  std::vector<std::int64_t> cuts = {};
};

class Prefetcher {
 public:
  // Starts the thread. Errors: kConfig if slots is not a power of two or less than held + 2, or the
  // ring does not fit the address space; NoMemory(); kOs if no thread can be started; those of
  // options.memory.
  static Result<std::unique_ptr<Prefetcher>> Start(const Dataset& dataset,
                                                   std::unique_ptr<IndexSource> source,
                                                   const PrefetcherOptions& options = {});

  // The size of a ring for micro-batches of at most `samples`. nullopt: does not fit the address
  // space.
  static std::optional<std::size_t> RingBytes(const SampleSpec& spec, std::int64_t samples,
                                              int slots = PrefetcherOptions::kSlots);

  // Stops the thread, also during a burst.
  ~Prefetcher();
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  // Waits for the next micro-batch and returns it; nullptr after the last. The caller may read and
  // write it until the next call, or `held` calls longer. samples may be 0. Every tensor is aligned
  // to 64 bytes.
  [[nodiscard]] const BatchView* Next();

  // Whether Next() would not wait.
  [[nodiscard]] bool ready() const { return filled_.load() != next_; }

  // Dataset::ReadError(), also for batches read ahead; or that there was no memory to read one.
  [[nodiscard]] Status status() const;

  // The ring, and what the data set needs to fill it.
  [[nodiscard]] std::size_t memory_bytes() const {
    return bytes_ + static_cast<std::size_t>(dataset_.gather_bytes(source_->max_samples()));
  }

 private:
  struct FreeAligned {
    void operator()(std::byte* memory) const;
  };

  Prefetcher(const Dataset& dataset, std::unique_ptr<IndexSource> source);
  Status Allocate(const PrefetcherOptions& options);
  void Run();
  bool WaitForFreeSlots(std::uint32_t filled);  // false: stop
  [[nodiscard]] std::int64_t CutFor(std::span<const std::int64_t> samples) const;

  const Dataset& dataset_;
  std::unique_ptr<IndexSource> source_;
  std::vector<std::int64_t> cuts_;
  std::unique_ptr<std::byte[], FreeAligned> memory_;  // null: the ring is in the caller's memory
  std::size_t bytes_ = 0;
  struct Slot {
    BatchView view;               // samples may be kEnd
    std::span<std::int64_t> ids;  // memory of view.ids
    std::vector<void*> tensors = {};
  };
  std::vector<Slot> slots_;  // never reallocated

  // Counters since the start, modulo 2^32, each on its own cache line. filled_ is written by the
  // thread, taken_ (batches returned) by the caller. All accesses that decide about sleeping are
  // sequentially consistent: each side writes its counter before it reads the other's, so at least
  // one of them sees the other's write.
  alignas(64) std::atomic<std::uint32_t> filled_{0};
  alignas(64) std::atomic<std::uint32_t> taken_{0};
  alignas(64) std::atomic<bool> stop_{false};
  std::atomic<bool> lacks_memory_{false};
  std::uint32_t held_ = 0;
  std::uint32_t low_ = 0;   // number of slots in use at which the thread wakes up
  std::uint32_t next_ = 0;  // batches returned by Next(); at least taken_
  bool ended_ = false;
  std::thread thread_;
};

}  // namespace gaccd
