#include "daemon/inspect/watch/rank_lines.h"

#include <memory>
#include <optional>
#include <tuple>
#include <utility>

#include "collectives/base/files.h"
#include "collectives/base/strings.h"

namespace gaccd {
namespace {

constexpr std::size_t kMaxRanks = 100'000;
constexpr std::size_t kRankPiece = std::size_t{16} << 10;
constexpr std::size_t kLastLine = std::size_t{8} << 10;  // a line has less than 4 KB

std::vector<std::string> ListRankFiles(const std::string& folder) {
  std::vector<std::string> files;
  const auto names = ListFolder(folder, kMaxRanks);
  if (!names.ok()) return files;  // an older gaccd, or before the first update
  for (const std::string& name : *names) {
    if (name.ends_with(".jsonl")) files.push_back(name);
  }
  return files;
}

}  // namespace

RankLines::File::File(std::string path) : lines_(std::move(path), kRankPiece) {}

bool RankLines::File::Advance() {
  while (const auto line = lines_.Next()) {
    if (ParseEvent(*line, &event_)) return true;
    ++damaged_;
  }
  return false;
}

bool RankLines::File::IsBefore(const File& other) const {
  return std::tie(event_.at, lines_.path()) < std::tie(other.event_.at, other.lines_.path());
}

RankLines::RankLines(const std::string& attempt) : folder_(attempt + "/ev") { Refresh(); }

void RankLines::Refresh() {
  for (const std::string& name : ListRankFiles(folder_)) {
    if (names_.insert(name).second) merger_.Add(std::make_unique<File>(StrCat(folder_, "/", name)));
  }
  merger_.Refresh();
}

std::int64_t RankLines::damaged() const {
  std::int64_t lines = 0;
  for (const auto& file : merger_.sources()) lines += file->damaged();
  return lines;
}

std::vector<Event> NewestRankLines(const std::string& attempt) {
  const std::string folder = attempt + "/ev";
  std::vector<Event> newest;
  for (const std::string& name : ListRankFiles(folder)) {
    LineReader lines(StrCat(folder, "/", name), kLastLine, LineReader::From::kLastPiece);
    std::optional<Event> last;
    Event event;
    while (const auto line = lines.Next()) {
      if (ParseEvent(*line, &event) && event.name == "rank_step") last = event;
    }
    if (last) newest.push_back(*std::move(last));
  }
  return newest;
}

}  // namespace gaccd
