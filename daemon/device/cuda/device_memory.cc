#include "daemon/device/cuda/device_memory.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "collectives/base/strings.h"

namespace gaccd {
namespace {

// "13.4 GiB", "512 B"
std::string Size(std::int64_t bytes) {
  constexpr std::array<std::string_view, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1024 && unit + 1 < kUnits.size(); ++unit) value /= 1024;
  return StrCat(Format(unit == 0 ? "%.0f " : "%.1f ", value), kUnits[unit]);
}

}  // namespace

void DeviceMemory::Add(const std::string& name, std::int64_t bytes) {
  if (bytes == 0) return;
  const auto at = std::ranges::find(items_, name, &DeviceMemoryItem::name);
  if (at != items_.end()) {
    at->bytes += bytes;
  } else {
    items_.push_back({name, bytes});
  }
}

std::int64_t DeviceMemory::bytes() const {
  std::int64_t sum = 0;
  for (const DeviceMemoryItem& item : items_) sum += item.bytes;
  return sum;
}

std::string DeviceMemory::ToText() const {
  std::vector<DeviceMemoryItem> sorted = items_;
  std::ranges::stable_sort(sorted, std::ranges::greater{}, &DeviceMemoryItem::bytes);
  std::string text = Size(bytes());
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    text += StrCat(i == 0 ? ": " : ", ", sorted[i].name, " ", Size(sorted[i].bytes));
  }
  return text;
}

Status DeviceMemory::Fits(std::int64_t free_bytes, std::int64_t total_bytes) const {
  const std::int64_t wanted = bytes() + kReserveBytes;
  if (wanted <= free_bytes) return Status::Ok();
  std::string kinds;
  for (const DeviceMemoryItem& item : items_) kinds += StrCat(item.name, " ", item.bytes, ", ");
  return {ErrorKind::kConfig,
          StrCat("this job does not fit on the GPU: wanted ", wanted, " bytes (", Size(wanted),
                 "), found ", free_bytes, " of ", total_bytes, " free (", Size(free_bytes),
                 "); wanted are ", kinds, "reserve ", kReserveBytes,
                 "; a smaller micro-batch needs less")};
}

}  // namespace gaccd
