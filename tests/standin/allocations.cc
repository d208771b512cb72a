#include "tests/standin/allocations.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>

#include "collectives/base/strings.h"
#include "tests/standin/fatal.h"

#if defined(GACCD_SANITIZED)
#include <sanitizer/asan_interface.h>
#endif

namespace gaccd::standin {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kAlignment = 256;
// New memory is filled with ones (a NaN), so that nobody relies on zeros; huge blocks only at the
// beginning, to save time and real memory.
constexpr std::size_t kFilledBytes = std::size_t{1} << 20;

struct Registry {
  std::mutex mutex;
  std::map<const std::byte*, Allocation*> all;  // records are never deleted
  std::map<int, std::int64_t> live_bytes;
  std::int64_t live = 0;  // of `all`
  std::uint64_t numbers = 0;
};

Registry& Get() {
  static auto* registry = new Registry;
  return *registry;
}

std::size_t RoundUp(std::size_t value, std::size_t to) { return (value + to - 1) / to * to; }

const char* KindName(MemoryKind kind) {
  switch (kind) {
    case MemoryKind::kDevice:
      return "device memory";
    case MemoryKind::kPinned:
      return "page-locked memory";
    case MemoryKind::kRegistered:
      return "registered memory";
  }
  return "?";
}

std::string Describe(const Allocation& a) {
  return StrCat(KindName(a.kind), " no. ", a.number, " of ", a.bytes, " bytes");
}

int Key(const Allocation& a) { return a.kind == MemoryKind::kDevice ? a.device : -1; }

void Add(Registry& registry, Allocation* a) {
  a->number = ++registry.numbers;
  registry.all[a->base] = a;
  registry.live_bytes[Key(*a)] += static_cast<std::int64_t>(a->bytes);
  ++registry.live;
}

// The end of the memory is next to a page that nobody may touch.
void Map(Allocation* a) {
  const std::size_t used = RoundUp(a->bytes, kAlignment);
  a->mapping_bytes = RoundUp(used, kPage) + kPage;
  void* mapping = mmap(nullptr, a->mapping_bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) Fatal(StrCat("mmap of ", a->mapping_bytes, " bytes failed"));
  a->mapping = static_cast<std::byte*>(mapping);
  std::byte* guard = a->mapping + a->mapping_bytes - kPage;
  if (mprotect(guard, kPage, PROT_NONE) != 0) Fatal("mprotect failed");
  a->base = guard - used;
  std::memset(a->base, 0xff, std::min(a->bytes, kFilledBytes));
#if defined(GACCD_SANITIZED)
  ASAN_POISON_MEMORY_REGION(a->base + a->bytes, used - a->bytes);
#endif
}

Allocation* FindLocked(Registry& registry, const void* address, std::size_t bytes) {
  const auto* begin = static_cast<const std::byte*>(address);
  auto after = registry.all.upper_bound(begin);
  if (after == registry.all.begin()) return nullptr;
  Allocation* a = std::prev(after)->second;
  if (begin > a->base + a->bytes || (begin == a->base + a->bytes && bytes > 0)) return nullptr;
  if (bytes > static_cast<std::size_t>(a->base + a->bytes - begin)) {
    if (a->kind == MemoryKind::kRegistered) return nullptr;
    Fatal(StrCat(bytes, " bytes from offset ", begin - a->base, " of ", Describe(*a)));
  }
  // Registered memory belongs to the caller, who may use it for something else afterwards.
  if (a->kind == MemoryKind::kRegistered && !a->live.load(std::memory_order_relaxed))
    return nullptr;
  return a;
}

}  // namespace

Allocation* Allocate(MemoryKind kind, int device, std::size_t bytes, std::size_t device_limit) {
  auto* a = new Allocation;
  a->kind = kind;
  a->device = device;
  a->bytes = bytes;
  Registry& registry = Get();
  const std::lock_guard lock(registry.mutex);
  if (kind == MemoryKind::kDevice) {
    const auto used = static_cast<std::size_t>(registry.live_bytes[device]);
    if (bytes > device_limit || used > device_limit - bytes) {
      delete a;
      return nullptr;
    }
  }
  Map(a);
  Add(registry, a);
  return a;
}

Allocation* Register(void* base, std::size_t bytes) {
  Registry& registry = Get();
  const std::lock_guard lock(registry.mutex);
  if (FindLocked(registry, base, 1) != nullptr) return nullptr;
  auto* a = new Allocation;
  a->base = static_cast<std::byte*>(base);
  a->bytes = bytes;
  a->kind = MemoryKind::kRegistered;
  Add(registry, a);
  return a;
}

void Free(void* base, MemoryKind kind, const char* function) {
  Registry& registry = Get();
  const std::lock_guard lock(registry.mutex);
  const auto at = registry.all.find(static_cast<std::byte*>(base));
  if (at == registry.all.end()) Fatal(StrCat(function, " of a pointer that was never allocated"));
  Allocation& a = *at->second;
  if (a.kind != kind) Fatal(StrCat(function, " of ", Describe(a)));
  if (!a.live.load(std::memory_order_relaxed)) Fatal(StrCat(function, " twice of ", Describe(a)));
  if (a.users.load(std::memory_order_relaxed) > 0) {
    Fatal(StrCat(function, " of ", Describe(a), ", which a stream still uses ('",
                 a.user.load(std::memory_order_relaxed), "')"));
  }
  a.live.store(false, std::memory_order_relaxed);
  registry.live_bytes[Key(a)] -= static_cast<std::int64_t>(a.bytes);
  --registry.live;
  if (a.mapping == nullptr) return;
    // Gives the pages back and keeps the addresses.
#if defined(GACCD_SANITIZED)
  ASAN_UNPOISON_MEMORY_REGION(a.mapping, a.mapping_bytes);
#endif
  if (mmap(a.mapping, a.mapping_bytes, PROT_NONE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED) {
    Fatal("mmap of freed memory failed");
  }
}

Allocation* Find(const void* address, std::size_t bytes) {
  Registry& registry = Get();
  const std::lock_guard lock(registry.mutex);
  return FindLocked(registry, address, bytes);
}

void CheckLive(const Allocation& a, const char* work) {
  if (a.live.load(std::memory_order_relaxed)) return;
  Fatal(StrCat("'", work, "' uses freed ", Describe(a)));
}

std::int64_t CountLiveBytes(int device) {
  Registry& registry = Get();
  const std::lock_guard lock(registry.mutex);
  return registry.live_bytes[device];
}

std::string DescribeLive() {
  Registry& registry = Get();
  const std::lock_guard lock(registry.mutex);
  std::string text;
  if (registry.live == 0) return text;
  for (const auto& [base, a] : registry.all) {
    if (a->live.load(std::memory_order_relaxed)) text += StrCat("\n  ", Describe(*a));
  }
  return text;
}

}  // namespace gaccd::standin
