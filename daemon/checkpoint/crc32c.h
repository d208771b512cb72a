// CRC32C (Castagnoli, reflected polynomial 0x82f63b78), as in iSCSI, ext4 and LevelDB: detects
// every error burst of up to 32 bits. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace gaccd {

// Crc32c(b, Crc32c(a)) is the CRC of the concatenation of a and b.
[[nodiscard]] std::uint32_t Crc32c(std::span<const std::byte> bytes, std::uint32_t before = 0);

// Table-based, for CPUs without the instruction.
[[nodiscard]] std::uint32_t Crc32cByTable(std::span<const std::byte> bytes,
                                          std::uint32_t before = 0);

}  // namespace gaccd
