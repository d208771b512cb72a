#include "daemon/selftest/selftest_room.h"

#include <algorithm>
#include <atomic>
#include <fstream>
#include <memory>
#include <ranges>
#include <string>
#include <thread>
#include <vector>

#include "collectives/base/process_memory.h"
#include "collectives/base/strings.h"
#include "collectives/base/thread.h"

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

Status Refuse(const SelftestSize& size, std::int64_t most, const std::string& why) {
  return {
      ErrorKind::kOs,
      StrCat("selftest: this machine can run ", most, " ranks as threads, expected ", size.ranks,
             ": ", why, "; give fewer --nodes, or a smaller --micro-batch or --target-batch")};
}

}  // namespace

SelftestRoom FindSelftestRoom() {
  SelftestRoom room;
  if (const auto memory = FreeSharedMemory()) {
    room.bytes = static_cast<std::int64_t>(memory->free_bytes);
  }
  room.mappings = ReadNumber("/proc/sys/vm/max_map_count");
  return room;
}

std::int64_t MostRanks(const SelftestSize& size, const SelftestRoom& room) {
  const auto counts = std::views::iota(std::int64_t{1}, size.ranks + 1);
  const auto beyond = std::ranges::partition_point(counts, [&](std::int64_t ranks) {
    return BytesFor(size, ranks) <= static_cast<double>(room.bytes) &&
           ranks <= room.mappings / kMappingsARank;
  });
  return static_cast<std::int64_t>(beyond - counts.begin());
}

Status CheckSelftestRoom(const SelftestSize& size, const SelftestRoom& room) {
  const auto bytes = static_cast<std::int64_t>(std::min(BytesFor(size, size.ranks), 9e18));
  const std::int64_t by_memory = MostRanks(size, {.bytes = room.bytes});
  if (const std::int64_t most = MostRanks(size, room); most < size.ranks) {
    return Refuse(size, most,
                  most == by_memory ? StrCat("they need ", Megabytes(bytes),
                                             " of memory, there are ", Megabytes(room.bytes))
                                    : StrCat("a rank needs ", kMappingsARank,
                                             " mappings, vm.max_map_count is ", room.mappings));
  }
  const std::int64_t wanted = kThreadsARank * size.ranks + kOtherThreads;
  const std::int64_t started = CountStartable(wanted);
  if (started >= wanted) return Status::Ok();
  return Refuse(size, std::max<std::int64_t>(started - kOtherThreads, 0) / kThreadsARank,
                StrCat("they need ", wanted, " threads, ", started,
                       " could be started (ulimit -u, or the limit of its control group)"));
}

}  // namespace gaccd
