// Element types, and views of memory with a type known at run time.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace gaccd {

enum class DType : std::uint8_t { kF32, kF64, kI32, kI64, kU8, kBF16, kFP16 };

[[nodiscard]] constexpr std::size_t SizeOf(DType dtype) {
  switch (dtype) {
    case DType::kU8:
      return 1;
    case DType::kBF16:
    case DType::kFP16:
      return 2;
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kF64:
    case DType::kI64:
      return 8;
  }
  return 0;
}

[[nodiscard]] constexpr std::string_view Name(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "f32";
    case DType::kF64:
      return "f64";
    case DType::kI32:
      return "i32";
    case DType::kI64:
      return "i64";
    case DType::kU8:
      return "u8";
    case DType::kBF16:
      return "bf16";
    case DType::kFP16:
      return "fp16";
  }
  return "?";
}

// Whether activations may have this type.
[[nodiscard]] constexpr bool IsFloat(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kFP16;
}

// Whether communicators can reduce it.
[[nodiscard]] constexpr bool IsSummed(DType dtype) {
  return dtype != DType::kU8 && dtype != DType::kFP16;
}

// C++ types with a DType. kBF16 and kFP16 have none on the host.
template <typename T>
concept Element = std::same_as<T, float> || std::same_as<T, double> ||
    std::same_as<T, std::int32_t> || std::same_as<T, std::int64_t> || std::same_as<T, std::uint8_t>;

// DTypeOf<float> == DType::kF32, and so on.
template <Element T>
inline constexpr DType DTypeOf = std::same_as<T, float>          ? DType::kF32
                                 : std::same_as<T, double>       ? DType::kF64
                                 : std::same_as<T, std::int32_t> ? DType::kI32
                                 : std::same_as<T, std::int64_t> ? DType::kI64
                                                                 : DType::kU8;

// Views: arguments of collectives. Counts are elements, never bytes. A view does not own its
// memory.

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
