// Element types of data files. Batches only have f32 and i32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

namespace gaccd {

enum class StoredType : std::uint8_t { kU8, kI8, kU16, kI16, kU32, kI32, kU64, kI64, kF32, kF64 };

// Calls use(T{}) with the C++ type T.
template <typename Use>
constexpr auto VisitStored(StoredType type, const Use& use) {
  switch (type) {
    case StoredType::kU8:
      return use(std::uint8_t{});
    case StoredType::kI8:
      return use(std::int8_t{});
    case StoredType::kU16:
      return use(std::uint16_t{});
    case StoredType::kI16:
      return use(std::int16_t{});
    case StoredType::kU32:
      return use(std::uint32_t{});
    case StoredType::kI32:
      return use(std::int32_t{});
    case StoredType::kU64:
      return use(std::uint64_t{});
    case StoredType::kI64:
      return use(std::int64_t{});
    case StoredType::kF64:
      return use(double{});
    case StoredType::kF32:
      break;
  }
  return use(float{});
}

// The same for floating-point types or integers only, so that `use` is not compiled for the others.
// REQUIRES: `type` is of this kind.
template <typename Use>
constexpr auto VisitStoredFloat(StoredType type, const Use& use) {
  return type == StoredType::kF64 ? use(double{}) : use(float{});
}
template <typename Use>
constexpr auto VisitStoredInteger(StoredType type, const Use& use) {
  return VisitStored(type, [&use](auto element) {
    if constexpr (std::is_integral_v<decltype(element)>) {
      return use(element);
    } else {
      return decltype(use(std::int64_t{})){};
    }
  });
}

[[nodiscard]] constexpr std::size_t SizeOf(StoredType type) {
  return VisitStored(type, [](auto element) { return sizeof element; });
}

[[nodiscard]] constexpr bool IsFloat(StoredType type) {
  return type == StoredType::kF32 || type == StoredType::kF64;
}

[[nodiscard]] constexpr std::string_view Name(StoredType type) {
  constexpr std::string_view kNames[] = {"u8",  "i8",  "u16", "i16", "u32",
                                         "i32", "u64", "i64", "f32", "f64"};
  return kNames[static_cast<std::size_t>(type)];
}

}  // namespace gaccd
