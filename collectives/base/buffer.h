// Views of memory whose element type is known at run time: arguments of collectives. Counts are
// elements, never bytes. A view does not own its memory.
#pragma once

#include <cstddef>
#include <span>

#include "collectives/base/dtype.h"

namespace gaccd {

// The location of a buffer. Only some communicators accept kCuda buffers.
enum class MemoryKind : std::uint8_t { kHost, kCuda };

// The stream on which a device collective is enqueued; host communicators ignore it.
struct StreamHandle {
  void* native = nullptr;  // cudaStream_t on a GPU
};

struct ConstBuffer {
  const void* data = nullptr;
  std::size_t count = 0;
  DType dtype = DType::kF32;
  MemoryKind memory = MemoryKind::kHost;

  [[nodiscard]] std::size_t bytes() const { return count * SizeOf(dtype); }
};

struct MutableBuffer {
  void* data = nullptr;
  std::size_t count = 0;
  DType dtype = DType::kF32;
  MemoryKind memory = MemoryKind::kHost;

  [[nodiscard]] std::size_t bytes() const { return count * SizeOf(dtype); }
  operator ConstBuffer() const { return {data, count, dtype, memory}; }  // NOLINT
};

template <Element T>
[[nodiscard]] ConstBuffer View(std::span<const T> span) {
  return {span.data(), span.size(), DTypeOf<T>, MemoryKind::kHost};
}
template <Element T>
[[nodiscard]] MutableBuffer View(std::span<T> span) {
  return {span.data(), span.size(), DTypeOf<T>, MemoryKind::kHost};
}

}  // namespace gaccd
