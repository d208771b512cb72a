// A thread that reads micro-batches ahead of the training loop, into a ring of `slots` batches that
// is allocated once.
//
// The thread often shares its core with the loop, so it works in bursts: it sleeps until half of
// the slots that are not held are free and then fills them all. That is one wake-up per
// (slots - held) / 2 micro-batches; in between, Next() is two atomic operations.
//
// Next() and the destructor belong to one thread. The data set must outlive the Prefetcher.
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
  // So many further calls of Next() leave a batch valid, the one after them does not: for devices
  // that read it while the loop continues.
  int held = 0;
  // Where the ring lives: at least so many bytes, aligned to 64, that outlive the prefetcher. Null,
  // or a null answer: memory of its own.
  RingMemory memory = nullptr;
  // Ascending: every micro-batch is cut to the first of these that none of its samples is longer
  // than; whole, where all are too short. REQUIRES: the data set's cuts, or empty.
  std::vector<std::int64_t> cuts = {};
};

class Prefetcher {
 public:
  // Starts the thread. Errors: kConfig when slots is not a power of two, or not at least held + 2,
  // or the ring does not fit the address space; NoMemory(), or kOs without a thread;
  // those of options.memory.
  static Result<std::unique_ptr<Prefetcher>> Start(const Dataset& dataset,
                                                   std::unique_ptr<IndexSource> source,
                                                   const PrefetcherOptions& options = {});

  // Of the ring for micro-batches of at most `samples`. Nothing: it does not fit the address space.
  static std::optional<std::size_t> RingBytes(const SampleSpec& spec, std::int64_t samples,
                                              int slots = PrefetcherOptions::kSlots);

  // Stops at any moment, also in the middle of a burst.
  ~Prefetcher();
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  // The next micro-batch, waiting for it if need be; nullptr after the last. Valid, and the
  // caller's to write into, until the next call, or `held` calls longer. samples may be 0. Every
  // tensor starts on a 64-byte boundary.
  [[nodiscard]] const BatchView* Next();

  // false: Next() would have to wait. One atomic operation.
  [[nodiscard]] bool ready() const { return filled_.load() != next_; }

  // Why a sample of a batch so far, or of one ahead, could not be read: Dataset::ReadError().
  [[nodiscard]] Status status() const { return dataset_.ReadError(); }

  [[nodiscard]] std::size_t memory_bytes() const { return bytes_; }  // of the ring

 private:
  struct FreeAligned {
    void operator()(std::byte* memory) const;
  };

  Prefetcher(const Dataset& dataset, std::unique_ptr<IndexSource> source);
  Status Allocate(const PrefetcherOptions& options);
  void Run();
  bool WaitForRoom(std::uint32_t filled);  // false: stop
  [[nodiscard]] std::int64_t CutFor(std::span<const std::int64_t> samples) const;

  const Dataset& dataset_;
  std::unique_ptr<IndexSource> source_;
  std::vector<std::int64_t> cuts_;
  std::unique_ptr<std::byte[], FreeAligned> memory_;  // null: the ring is in the caller's memory
  std::size_t bytes_ = 0;
  struct Slot {
    BatchView view;               // samples = what is in it now, or kEnd
    std::span<std::int64_t> ids;  // what view.ids shows
    std::vector<void*> tensors = {};
  };
  std::vector<Slot> slots_;  // addresses fixed

  // Counters since the start, modulo 2^32, each on its own cache line. filled_ is written by the
  // thread, taken_ (batches given back) by the caller. All accesses that decide about sleeping are
  // sequentially consistent: each side first writes its counter and then reads the other's, so one
  // of them sees the other's write.
  alignas(64) std::atomic<std::uint32_t> filled_{0};
  alignas(64) std::atomic<std::uint32_t> taken_{0};
  alignas(64) std::atomic<bool> stop_{false};
  std::uint32_t held_ = 0;
  std::uint32_t low_ = 0;   // so many slots in use: the thread goes to work
  std::uint32_t next_ = 0;  // calls of Next() that gave a batch; taken_ is behind it
  bool ended_ = false;
  std::thread thread_;
};

}  // namespace gaccd
