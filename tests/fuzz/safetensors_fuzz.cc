#include <cstring>
#include <set>

#include "collectives/base/json.h"
#include "daemon/weights/safetensors.h"
#include "daemon/weights/safetensors_header.h"
#include "tests/fuzz/fuzz_check.h"
#include "tests/fuzz/fuzz_targets.h"

namespace gaccd {
namespace {

// What was read, written again as a header, must read as the same.
void CheckRoundTrip(const SafetensorsFile& file) {
  SafetensorsHeader header;
  header.metadata = file.metadata;
  std::int64_t offset = 0;
  for (const NamedTensor& tensor : file.tensors) {
    const auto end = offset + static_cast<std::int64_t>(tensor.values.size() * sizeof(float));
    header.entries.push_back({tensor.name, "F32", tensor.shape, offset, end});
    offset = end;
  }
  const auto again = ParseSafetensorsHeader(SafetensorsHeaderText(header));
  FuzzCheck(again.ok(), "a header we write can be read");
  FuzzCheck(again->metadata == header.metadata, "the metadata comes back");
  FuzzCheck(again->entries.size() == header.entries.size(), "every entry comes back");
  for (std::size_t i = 0; i < header.entries.size(); ++i) {
    const SafetensorsEntry& a = again->entries[i];
    const SafetensorsEntry& b = header.entries[i];
    FuzzCheck(a.name == b.name && a.shape == b.shape && a.begin == b.begin && a.end == b.end,
              "an entry comes back as it was");
  }
}

}  // namespace
}  // namespace gaccd

int gaccd::FuzzSafetensors(const std::uint8_t* data, std::size_t size) {
  using gaccd::FuzzCheck;
  const auto file = gaccd::DecodeSafetensors("input", std::as_bytes(std::span(data, size)));
  if (!file.ok()) return 0;
  std::set<std::string> names;
  std::size_t bytes = 0;
  for (const gaccd::NamedTensor& tensor : file->tensors) {
    FuzzCheck(names.insert(tensor.name).second, "names are unique");
    FuzzCheck(gaccd::IsUtf8(tensor.name), "names are UTF-8");
    FuzzCheck(gaccd::Elements(tensor.shape) == static_cast<std::int64_t>(tensor.values.size()),
              "a tensor has as many values as its shape says");
    bytes += tensor.values.size() * sizeof(float);
  }
  std::uint64_t length = 0;
  std::memcpy(&length, data, sizeof length);
  const std::size_t rest = size - sizeof length - length;
  FuzzCheck(file->others.empty() ? bytes == rest : bytes <= rest,
            "the tensors are what follows the header");
  gaccd::CheckRoundTrip(*file);
  return 0;
}
