#include "daemon/watch/rank_lines.h"

#include <utility>

#include "collectives/base/files.h"
#include "collectives/base/strings.h"

namespace gaccd {
namespace {

constexpr std::size_t kMaxRanks = 100'000;
constexpr std::size_t kRankPiece = std::size_t{16} << 10;
constexpr std::size_t kLastLine = std::size_t{8} << 10;  // a line has less than 4 KB

std::vector<std::string> FilesOf(const std::string& folder) {
  std::vector<std::string> files;
  const auto names = ListFolder(folder, kMaxRanks);
  if (!names.ok()) return files;  // of an older gaccd, or before the first update
  for (const std::string& name : *names) {
    if (name.ends_with(".jsonl")) files.push_back(name);
  }
  return files;
}

}  // namespace

RankLines::RankLines(const std::string& attempt) : folder_(attempt + "/ev") { Refresh(); }

void RankLines::Refresh() {
  for (const std::string& name : FilesOf(folder_)) {
    files_.try_emplace(name, LineReader(StrCat(folder_, "/", name), kRankPiece));
  }
  for (auto& [name, file] : files_) file.at_end = false;
}

void RankLines::Fill(File& file) {
  Event event;
  while (!file.ahead && !file.at_end) {
    const auto line = file.lines.Next();
    if (!line) {
      file.at_end = true;
    } else if (ParseEvent(*line, &event)) {
      file.ahead = std::move(event);
    } else {
      ++damaged_;
    }
  }
}

const Event* RankLines::Next() {
  first_ = nullptr;
  for (auto& [name, file] : files_) {
    Fill(file);
    const bool earlier = file.ahead && (first_ == nullptr || file.ahead->at < first_->ahead->at);
    if (earlier) first_ = &file;
  }
  return first_ == nullptr ? nullptr : &*first_->ahead;
}

Event RankLines::Take() { return *std::exchange(first_->ahead, std::nullopt); }

std::vector<Event> NewestRankLines(const std::string& attempt) {
  const std::string folder = attempt + "/ev";
  std::vector<Event> newest;
  for (const std::string& name : FilesOf(folder)) {
    LineReader lines(StrCat(folder, "/", name), kLastLine, LineReader::From::kLastPiece);
    std::optional<Event> last;
    Event event;
    while (const auto line = lines.Next()) {
      if (ParseEvent(*line, &event)) last = event;
    }
    if (last) newest.push_back(*std::move(last));
  }
  return newest;
}

}  // namespace gaccd
