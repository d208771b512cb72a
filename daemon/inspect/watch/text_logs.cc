#include "daemon/inspect/watch/text_logs.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <tuple>
#include <utility>

#include "collectives/base/files.h"
#include "collectives/base/strings.h"
#include "daemon/inspect/watch/event_stream.h"
#include "daemon/inspect/watch/line_reader.h"

namespace gaccd {
namespace {

constexpr std::size_t kMaxFiles = 1'000'000;
constexpr std::size_t kTextPiece = std::size_t{16} << 10;  // of each of many files
constexpr std::size_t kTimeSize = std::string_view("20261120 03:04:05.123456").size();

// The level of a line "I20261120 03:04:05.123456 r17 ..."; nullopt for continuation lines.
std::optional<int> LineLevel(std::string_view line) {
  constexpr std::string_view kLevels = "IWEF";
  if (line.size() < kTimeSize + 2 || line[9] != ' ' || line[18] != '.') return std::nullopt;
  const std::size_t level = kLevels.find(line[0]);
  if (level == std::string_view::npos) return std::nullopt;
  for (const std::size_t at : {1, 8, 10, 11, 13, 14, 16, 17, 19, 24}) {
    if (std::isdigit(static_cast<unsigned char>(line[at])) == 0) return std::nullopt;
  }
  return std::min(static_cast<int>(level), 2);
}

// "# 2026-11-20T03:04:05.123456Z 3 lines are lost: ..." -> "20261120 03:04:05.123456".
std::optional<std::string> NoticeTime(std::string_view line) {
  if (!line.starts_with("# ") || line.size() < 29) return std::nullopt;
  const std::string_view ts = line.substr(2, 27);
  if (!ParseTimestamp(ts)) return std::nullopt;
  return StrCat(ts.substr(0, 4), ts.substr(5, 2), ts.substr(8, 2), " ", ts.substr(11, 15));
}

// The rank of "r00017.gaccd.INFO.20261120-030405.4711".
std::optional<std::int64_t> FileRank(const std::string& name) {
  int rank = 0;
  int end = 0;
  const bool found = std::sscanf(name.c_str(), "r%9d.gaccd.INFO.%n", &rank, &end) == 1 && end > 0;
  return found ? std::optional<std::int64_t>(rank) : std::nullopt;
}

}  // namespace

bool IsHost(std::string_view host, std::string_view asked) {
  return host == asked || host.substr(0, host.find('.')) == asked;
}

class TextLogs::Source {
 public:
  explicit Source(std::string path) : lines_(std::move(path), kTextPiece) {}

  // Sets record() to the next message. Messages are written atomically, so the end of the file so
  // far ends a message.
  bool Advance() {
    record_ = std::exchange(ahead_, std::nullopt);
    while (const auto line = lines_.Next()) {
      auto begun = Begin(*line);
      if (!begun && record_) record_->text.append(Printable(*line)) += '\n';
      if (!begun) continue;
      if (record_) {
        ahead_ = std::move(begun);
        return true;
      }
      record_ = std::move(begun);
    }
    return record_.has_value();
  }
  [[nodiscard]] LogRecord& record() { return *record_; }
  [[nodiscard]] bool IsBefore(const Source& other) const {
    return std::tie(record_->time, lines_.path()) <
           std::tie(other.record_->time, other.lines_.path());
  }
  [[nodiscard]] const LineReader& lines() const { return lines_; }

 private:
  static std::optional<LogRecord> Begin(std::string_view line) {
    LogRecord record;
    if (const auto level = LineLevel(line)) {
      record.level = *level;
      record.time = line.substr(1, kTimeSize);
    } else if (auto time = NoticeTime(line)) {
      record.level = 1;
      record.time = *std::move(time);
    } else {
      return std::nullopt;
    }
    record.text = Printable(line) + '\n';
    return record;
  }

  LineReader lines_;
  std::optional<LogRecord> record_;
  std::optional<LogRecord> ahead_;
};

TextLogs::TextLogs(Attempt attempt, LogFilter filter)
    : attempt_(std::move(attempt)),
      filter_(std::move(filter)),
      merger_(std::make_unique<Merger<Source>>()) {}
TextLogs::TextLogs(TextLogs&&) noexcept = default;
TextLogs& TextLogs::operator=(TextLogs&&) noexcept = default;
TextLogs::~TextLogs() = default;

Result<TextLogs> TextLogs::Open(const Attempt& attempt, const LogFilter& filter) {
  TextLogs logs(attempt, filter);
  GACCD_RETURN_IF_ERROR(logs.Refresh());
  return logs;
}

Status TextLogs::Refresh() {
  const std::string folder = attempt_.folder + "/log";
  if (!IsFolder(folder)) return {};  // no rank has started
  if (hosts_.empty()) hosts_ = RankHosts(attempt_);
  GACCD_ASSIGN_OR_RETURN(const auto names, ListFolder(folder, kMaxFiles));
  for (const std::string& name : names) {
    const auto rank = FileRank(name);
    if (!rank || (filter_.rank && *rank != *filter_.rank)) continue;
    const auto index = static_cast<std::size_t>(*rank);
    const bool on_host =
        filter_.host.empty() || (index < hosts_.size() && IsHost(hosts_[index], filter_.host));
    if (!on_host || !names_.insert(name).second) continue;
    merger_->Add(std::make_unique<Source>(StrCat(folder, "/", name)));
  }
  merger_->Refresh();
  return {};
}

bool TextLogs::Next(LogRecord* record) {
  while (merger_->First() != nullptr) {
    *record = merger_->Pop();
    if (record->level >= filter_.least_level) return true;
  }
  return NextVerdict(record);
}

bool TextLogs::NextVerdict(LogRecord* record) {
  // The verdict belongs to the run, not to a rank.
  if (verdict_taken_ || filter_.rank || !filter_.host.empty()) return false;
  const auto verdict = ReadEventFile(attempt_.folder + "/verdict.json");
  if (!verdict) return false;
  verdict_taken_ = true;
  constexpr int kError = 2;
  const std::int64_t exit = verdict->Whole("exit").value_or(0);
  const std::string_view ts = verdict->Text("ts");
  if (exit == 0 || ts.size() < 26) return false;
  record->level = kError;
  record->time = StrCat(ts.substr(0, 4), ts.substr(5, 2), ts.substr(8, 2), " ", ts.substr(11, 15));
  record->text = StrCat("E", record->time, " verdict ", Printable(verdict->Text("verdict")),
                        ", exit ", exit, ": ", Printable(verdict->Text("reason")), "\n");
  return true;
}

std::vector<std::string> TextLogs::notes() const {
  std::vector<std::string> notes;
  for (const auto& source : merger_->sources()) {
    const LineReader& lines = source->lines();
    if (!lines.status().ok()) notes.push_back(lines.status().message());
    if (lines.torn_bytes() > 0) {
      notes.push_back(StrCat("'", lines.path(), "': the last line is cut off"));
    }
  }
  return notes;
}

}  // namespace gaccd
