#include "daemon/selftest/selftest_limits.h"

#include <algorithm>
#include <atomic>
#include <fstream>
#include <memory>
#include <ranges>
#include <thread>
#include <vector>

#include "collectives/base/memory.h"
#include "collectives/base/strings.h"
#include "collectives/base/thread.h"
#include "daemon/telemetry/log.h"

namespace gaccd {
namespace {

constexpr std::int64_t kThreadsARank = 2;   // the rank and its prefetcher
constexpr std::int64_t kOtherThreads = 4;   // of libraries and sanitizers
constexpr std::int64_t kMappingsARank = 8;  // two stacks with guard pages, buffers

// Accurate within 20 % for 240 to 8000 ranks. In floating point, because sizes have no limit.
double BytesFor(const SelftestSize& size, std::int64_t ranks) {
  const auto count = static_cast<double>(ranks);  // every rank stores the places of all
  return 64e6 + count * (480e3 + 2e3 * static_cast<double>(size.micro_batch) + 56 * count) +
         320 * static_cast<double>(size.samples);
}

// The first word of a file as a number, or the number after `key`. INT64_MAX: there is none.
std::int64_t ReadNumber(const std::string& path, std::string_view key = {}) {
  std::ifstream file(path);
  for (std::string word; file >> word;) {
    if (!key.empty() && word != key) continue;
    std::int64_t number = 0;
    if (!key.empty()) return file >> number ? number : INT64_MAX;
    return std::ranges::all_of(word, [](char c) { return c >= '0' && c <= '9'; }) &&
                   word.size() < 19
               ? std::stoll(word)
               : INT64_MAX;  // "max"
  }
  return INT64_MAX;
}

std::int64_t CountStartable(std::int64_t wanted) {
  std::vector<std::thread> threads;
  std::atomic<bool> end = false;
  while (std::ssize(threads) < wanted) {
    auto thread = StartThread("a rank", [&end] {
      const auto arena =
          std::make_unique<std::atomic<char>>();  // allocates an arena for the thread
      end.wait(false);
    });
    if (!thread.ok()) break;
    threads.push_back(*std::move(thread));
  }
  const std::int64_t started = std::ssize(threads);
  end = true;
  end.notify_all();
  for (std::thread& thread : threads) thread.join();
  return started;
}

Status Refuse(const SelftestSize& size, std::int64_t max_ranks, const std::string& why) {
  return {ErrorKind::kOs,
          StrCat("selftest: this machine can run ", max_ranks, " ranks as threads, expected ",
                 size.ranks, ": ", why,
                 "; give fewer --nodes, or a smaller --micro-batch or --target-batch")};
}

}  // namespace

SelftestLimits ReadSelftestLimits() {
  SelftestLimits limits;
  if (const auto memory = FreeSharedMemory()) {
    limits.bytes = static_cast<std::int64_t>(memory->free_bytes);
  }
  limits.mappings = ReadNumber("/proc/sys/vm/max_map_count");
  return limits;
}

std::int64_t MaxRanks(const SelftestSize& size, const SelftestLimits& limits) {
  const auto counts = std::views::iota(std::int64_t{1}, size.ranks + 1);
  const auto beyond = std::ranges::partition_point(counts, [&](std::int64_t ranks) {
    return BytesFor(size, ranks) <= static_cast<double>(limits.bytes) &&
           ranks <= limits.mappings / kMappingsARank;
  });
  return static_cast<std::int64_t>(beyond - counts.begin());
}

Status CheckSelftestLimits(const SelftestSize& size, const SelftestLimits& limits) {
  const auto bytes = static_cast<std::int64_t>(std::min(BytesFor(size, size.ranks), 9e18));
  const std::int64_t by_memory = MaxRanks(size, {.bytes = limits.bytes});
  if (const std::int64_t max_ranks = MaxRanks(size, limits); max_ranks < size.ranks) {
    return Refuse(size, max_ranks,
                  max_ranks == by_memory
                      ? StrCat("they need ", Megabytes(bytes), " of memory, there are ",
                               Megabytes(limits.bytes))
                      : StrCat("a rank needs ", kMappingsARank, " mappings, vm.max_map_count is ",
                               limits.mappings));
  }
  const std::int64_t wanted = kThreadsARank * size.ranks + kOtherThreads;
  const std::int64_t started = CountStartable(wanted);
  if (started >= wanted) {
    if (const std::string needs = SelftestNeeds(size); !needs.empty()) LogWarning(needs);
    return Status::Ok();
  }
  return Refuse(size, std::max<std::int64_t>(started - kOtherThreads, 0) / kThreadsARank,
                StrCat("they need ", wanted, " threads, ", started,
                       " could be started (ulimit -u, or the limit of its control group)"));
}

std::string SelftestNeeds(const SelftestSize& size) {
  constexpr std::int64_t kLarge = 1'000'000'000;
  const auto bytes = static_cast<std::int64_t>(std::min(BytesFor(size, size.ranks), 9e18));
  if (bytes < kLarge) return {};
  return StrCat("selftest: ", size.ranks, " ranks run as threads of this process, with about ",
                Megabytes(bytes), " of memory; this may take minutes");
}

}  // namespace gaccd
