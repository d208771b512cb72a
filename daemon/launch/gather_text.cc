#include "daemon/launch/gather_text.h"

#include <cstdint>
#include <numeric>
#include <span>

namespace gaccd {

Result<std::vector<std::string>> GatherText(Communicator& comm, std::string_view mine) {
  const auto world = static_cast<std::size_t>(comm.size());
  const std::int64_t size = std::ssize(mine);
  std::vector<std::int64_t> sizes(world);
  const std::vector<std::int64_t> ones(world, 1);
  GACCD_RETURN_IF_ERROR(comm.AllGather(View(std::span<const std::int64_t>(&size, 1)), ones,
                                       View(std::span<std::int64_t>(sizes))));
  const std::vector<std::uint8_t> own(mine.begin(), mine.end());
  std::vector<std::uint8_t> all(
      static_cast<std::size_t>(std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0})));
  GACCD_RETURN_IF_ERROR(comm.AllGather(View(std::span<const std::uint8_t>(own)), sizes,
                                       View(std::span<std::uint8_t>(all))));
  std::vector<std::string> texts;
  auto at = all.begin();
  for (const std::int64_t length : sizes) {
    texts.emplace_back(at, at + length);
    at += length;
  }
  return texts;
}

}  // namespace gaccd
