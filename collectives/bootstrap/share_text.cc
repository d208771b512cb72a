#include "collectives/bootstrap/share_text.h"

#include <array>
#include <cstdint>
#include <numeric>
#include <span>

namespace gaccd {

Result<std::string> ShareFromRank(Communicator& comm, int root, const Result<std::string>& mine) {
  constexpr std::int64_t kSuccess = 0;  // not used by any ErrorKind
  std::string text = mine.ok() ? *mine : mine.status().message();
  std::array<std::int64_t, 2> head{
      mine.ok() ? kSuccess : static_cast<std::int64_t>(mine.status().kind()), std::ssize(text)};
  GACCD_RETURN_IF_ERROR(comm.Broadcast(View(std::span<std::int64_t>(head)), root));
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(head[1]));
  if (comm.rank() == root) bytes.assign(text.begin(), text.end());
  GACCD_RETURN_IF_ERROR(comm.Broadcast(View(std::span<std::uint8_t>(bytes)), root));
  text.assign(bytes.begin(), bytes.end());
  if (head[0] == kSuccess) return text;
  return Status(static_cast<ErrorKind>(head[0]), text);
}

Result<std::vector<std::string>> GatherText(Communicator& comm, std::string_view mine) {
  GACCD_ASSIGN_OR_RETURN(const std::vector<std::int64_t> sizes,
                         GatherAll(comm, std::int64_t{std::ssize(mine)}));
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
