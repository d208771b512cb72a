// All memory that the stand-in has given out: on devices, page-locked, and registered. Freed memory
// is remembered and never given out again, and touching it is a segmentation fault.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

namespace gaccd::standin {

enum class MemoryKind { kDevice, kPinned, kRegistered };

struct Allocation {
  std::byte* base = nullptr;
  std::size_t bytes = 0;
  std::byte* mapping = nullptr;
  std::size_t mapping_bytes = 0;
  MemoryKind kind = MemoryKind::kDevice;
  int device = 0;
  std::uint64_t number = 0;  // in the order of allocation
  std::atomic<bool> live{true};
  std::atomic<int> users{0};               // pieces of work that wait or run
  std::atomic<const char*> user{nullptr};  // the latest of them
};

// Thread-safe. Null: does not fit into the device's memory.
Allocation* Allocate(MemoryKind kind, int device, std::size_t bytes, std::size_t device_limit);
// Null: overlaps with what is there.
Allocation* Register(void* base, std::size_t bytes);
// `base` as it was given out. Stops the process when it was not, or is still in use.
void Free(void* base, MemoryKind kind, const char* function);

// The allocation that contains all of it, also a freed one; null: there is none, so it is ordinary
// host memory. With 0 bytes one past the end also counts.
Allocation* Find(const void* address, std::size_t bytes);
// Stops the process where `work` may not touch it: beyond the end, freed.
void CheckLive(const Allocation& allocation, const char* work);

std::int64_t CountLiveBytes(int device);  // -1: page-locked
std::string DescribeLive();               // empty: nothing lives

}  // namespace gaccd::standin
