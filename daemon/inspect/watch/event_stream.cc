#include "daemon/inspect/watch/event_stream.h"

#include <algorithm>
#include <memory>
#include <tuple>
#include <utility>

#include "collectives/base/files.h"
#include "collectives/base/strings.h"

namespace gaccd {

namespace {

constexpr std::size_t kMaxRecords = 100'000;
constexpr std::size_t kPiece = std::size_t{256} << 10;

}  // namespace

std::optional<Event> ReadEventFile(const std::string& path) {
  const auto text = ReadStart(path, LineReader::kMaxBytes);
  if (!text.ok()) return std::nullopt;
  std::optional<Event> event(std::in_place);
  if (!ParseEvent(std::string_view(*text).substr(0, text->find('\n')), &*event)) event.reset();
  return event;
}

Result<EventStream> EventStream::Open(const std::string& run_dir, std::string_view only,
                                      RankEvents rank_events) {
  GACCD_ASSIGN_OR_RETURN(AttemptList list, ListAttempts(run_dir, only));
  return EventStream(run_dir, std::string(only), rank_events, std::move(list));
}

EventStream::EventStream(std::string run_dir, std::string only, RankEvents rank_events,
                         AttemptList list)
    : run_dir_(std::move(run_dir)),
      only_(std::move(only)),
      rank_events_(rank_events),
      list_(std::move(list)) {
  if (!list_.attempts.empty()) Enter(0);
}

void EventStream::Enter(std::size_t attempt) {
  at_ = attempt;
  const std::string& folder = list_.attempts[at_].folder;
  lines_.emplace(folder + "/events.jsonl", kPiece);
  read_records_.clear();
  records_.clear();
  ReadCrashRecords();
  if (rank_events_ == RankEvents::kRead) ranks_.emplace(folder);
  check_ = {};
}

// Reads new crash records.
void EventStream::ReadCrashRecords() {
  const std::string folder = list_.attempts[at_].folder + "/crash";
  const auto names = ListFolder(folder, kMaxRecords);
  if (!names.ok()) return;  // no rank crashed
  for (const std::string& name : *names) {
    if (!name.ends_with(".json") || read_records_.contains(name)) continue;
    auto record = ReadEventFile(StrCat(folder, "/", name));
    if (!record) continue;  // incomplete
    read_records_.insert(name);
    records_.push_back(*std::move(record));
  }
  std::ranges::stable_sort(records_, {}, &Event::at);
}

// Sets ahead_. False at the end of the file so far.
bool EventStream::ReadLine() {
  if (ahead_) return true;
  Event event;
  while (const auto line = lines_->Next()) {
    if (!ParseEvent(*line, &event)) {
      ++check_.damaged;
      continue;
    }
    Check(event);
    ahead_ = std::move(event);
    return true;
  }
  return false;
}

void EventStream::Check(const Event& event) {
  const std::int64_t seq = event.Whole("seq").value_or(check_.last_seq + 1);
  check_.two_writers |= seq <= check_.last_seq;
  if (event.name != "dropped" && event.name != "thinned")
    check_.missing += std::max<std::int64_t>(0, seq - check_.last_seq - 1);
  if (event.name == "dropped")
    check_.lost += std::max<std::int64_t>(0, event.Whole("lines").value_or(0));
  check_.last_seq = seq;
  check_.back_in_time |= check_.last && event.at < *check_.last;
  if (!check_.last && before_ && event.at < *before_) {
    notes_.push_back(StrCat("attempt ", list_.attempts[at_].name, " begins ",
                            SecondsBetween(event.at, *before_), " s before attempt ",
                            list_.attempts[at_ - 1].name,
                            " ends: both ran at once, or a clock jumped"));
  }
  check_.last = event.at;
  check_.has_verdict |= event.name == "verdict";
}

// Another rank writes verdict.json if rank 0 was lost. Rank 0 writes its line before the file.
void EventStream::ReadVerdict() {
  if (check_.has_verdict) return;
  auto verdict = ReadEventFile(list_.attempts[at_].folder + "/verdict.json");
  if (!verdict || ReadLine()) return;
  check_.has_verdict = true;
  ahead_ = std::move(verdict);
}

// At equal times crash records come first, then lines of ranks.
std::optional<Event> EventStream::Earliest() {
  if (!ReadLine()) ReadVerdict();
  const Event* of_rank = ranks_ ? ranks_->Next() : nullptr;
  const bool before_line = of_rank != nullptr && (!ahead_ || of_rank->at <= ahead_->at);
  const Event* next = before_line ? of_rank : ahead_ ? &*ahead_ : nullptr;
  if (!records_.empty() && (next == nullptr || records_.front().at <= next->at)) {
    Event record = std::move(records_.front());
    records_.pop_front();
    return record;
  }
  return before_line ? ranks_->Pop() : std::exchange(ahead_, std::nullopt);
}

bool EventStream::Next(Event* event) {
  while (lines_) {
    if (auto earliest = Earliest()) {
      *event = *std::move(earliest);
      event->attempt = list_.attempts[at_].name;
      return true;
    }
    if (at_ + 1 == list_.attempts.size()) return false;
    for (std::string& note : AttemptNotes()) notes_.push_back(std::move(note));
    if (check_.last) before_ = check_.last;
    Enter(at_ + 1);
  }
  return false;
}

StreamPosition EventStream::position() const {
  return {list_.attempts[at_].name, lines_->offset(), check_.has_verdict};
}

void EventStream::SkipTo(const StreamPosition& position) {
  const auto found = std::ranges::find(list_.attempts, position.attempt, &Attempt::name);
  Enter(static_cast<std::size_t>(found - list_.attempts.begin()));
  records_.clear();
  lines_->SkipTo(position.offset);
  check_.has_verdict = position.has_verdict;
}

Status EventStream::Refresh() {
  // "latest" continues with later attempts.
  const bool later = lines_ && only_ == "latest";
  GACCD_ASSIGN_OR_RETURN(AttemptList list, ListAttempts(run_dir_, later ? "" : only_));
  const std::string now = lines_ ? list_.attempts[at_].name : std::string();
  auto same = std::ranges::find(list.attempts, now, &Attempt::name);
  if (later) same = list.attempts.erase(list.attempts.begin(), same);
  if (same == list.attempts.end()) {
    if (lines_ || list.attempts.empty()) return {};  // the folder was removed
    list_ = std::move(list);
    Enter(0);
    return {};
  }
  at_ = static_cast<std::size_t>(same - list.attempts.begin());
  list_ = std::move(list);
  ReadCrashRecords();
  if (ranks_) ranks_->Refresh();
  return {};
}

std::vector<std::string> EventStream::AttemptNotes() const {
  std::vector<std::string> notes;
  const auto note = [&](const auto&... words) {
    notes.push_back(StrCat("attempt ", list_.attempts[at_].name, ": ", words...));
  };
  if (!lines_->status().ok()) note(lines_->status().message());
  if (lines_->torn_bytes() > 0) note("its last line is cut off");
  const auto damaged = check_.damaged + lines_->too_long() + (ranks_ ? ranks_->damaged() : 0);
  if (damaged > 0) {
    note(damaged, " lines are damaged");
  }
  if (check_.missing > 0) note(check_.missing, " lines are missing");
  if (check_.lost > 0) {
    note(check_.lost, " lines were lost when the disk was full or silent: sums over updates and ",
         "samples lack them");
  }
  if (check_.two_writers) note("its lines have two writers, or are duplicated");
  if (check_.back_in_time) note("its clock was set back");
  return notes;
}

std::vector<std::string> EventStream::notes() const {
  std::vector<std::string> notes = list_.notes;
  notes.insert(notes.end(), notes_.begin(), notes_.end());
  if (lines_) {
    for (std::string& note : AttemptNotes()) notes.push_back(std::move(note));
  }
  return notes;
}

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
