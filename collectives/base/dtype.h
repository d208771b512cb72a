// Element types of buffers that are sent or computed with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace gaccd {

enum class DType : std::uint8_t { kF32, kF64, kI32, kI64, kU8, kBF16 };

[[nodiscard]] constexpr std::size_t SizeOf(DType dtype) {
  switch (dtype) {
    case DType::kU8:
      return 1;
    case DType::kBF16:
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
  }
  return "?";
}

// DTypeOf<float> == DType::kF32, and so on. Not defined for other types; kBF16 has none on the
// host.
template <typename T>
inline constexpr DType DTypeOf = DType{255};
template <>
inline constexpr DType DTypeOf<float> = DType::kF32;
template <>
inline constexpr DType DTypeOf<double> = DType::kF64;
template <>
inline constexpr DType DTypeOf<std::int32_t> = DType::kI32;
template <>
inline constexpr DType DTypeOf<std::int64_t> = DType::kI64;
template <>
inline constexpr DType DTypeOf<std::uint8_t> = DType::kU8;

}  // namespace gaccd
