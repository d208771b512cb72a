#include "daemon/inspect/watch/logs_command.h"

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstdio>
#include <functional>
#include <thread>
#include <tuple>
#include <utility>

#include "collectives/base/files.h"
#include "collectives/base/output.h"
#include "collectives/base/strings.h"
#include "daemon/inspect/watch/event_stream.h"
#include "daemon/inspect/watch/run_state.h"
#include "daemon/inspect/watch/slurm_facts.h"
#include "daemon/telemetry/log.h"
#include "slurm/hostlist.h"

namespace gaccd {

namespace {

constexpr std::chrono::milliseconds kAgain{500};

// Buffered standard output.
class Output {
 public:
  Status Add(std::string_view text) {
    constexpr std::size_t kFlushBytes = std::size_t{64} << 10;
    text_ += text;
    return text_.size() < kFlushBytes ? Status() : Flush();
  }
  Status Flush() {
    const Status status = PrintOut(text_);
    text_.clear();
    return status;
  }

 private:
  std::string text_;
};

// Logs each note once.
class Notes {
 public:
  void Warn(const std::vector<std::string>& notes) {
    for (const std::string& note : notes) {
      if (warned_.insert(note).second) LogWarning(note);
    }
  }

 private:
  std::set<std::string> warned_;
};

// Determines when --follow ends.
class Follower {
 public:
  explicit Follower(const LogsRequest& request) : request_(request) {}

  // Whether the files are complete. To be called before they are read.
  bool IsLast() {
    if (!request_.follow) return true;
    auto state = ReadRunState(request_.folder, std::chrono::system_clock::now());
    if (!state.ok()) {
      why_ = state.status().message();
      return true;
    }
    AddSlurmFacts({&*state, 1}, std::ref(finder_));
    if (!IsPermanentlyEnded(*state)) return false;
    why_ = StrCat("the run is ", Name(state->phase));
    for (const std::string& more : {state->slurm, state->reason}) {
      if (!more.empty()) why_ += StrCat("; ", more);
    }
    return true;
  }
  // Prints to stderr why it ends.
  void PrintWhy() const {
    if (!why_.empty()) std::fputs(StrCat("gaccd: ", why_, "\n").c_str(), stderr);
  }

 private:
  const LogsRequest& request_;
  ThrottledFinder finder_;
  std::string why_;
};

int EventLevel(const Event& event) {
  const std::string_view level = event.Text("lvl");
  return level == "error" ? 2 : level == "warning" ? 1 : 0;
}

bool Passes(const Event& event, const LogFilter& filter) {
  return (!filter.rank || event.Whole("rank") == filter.rank) &&
         (filter.host.empty() || IsSameHost(event.Text("host"), filter.host)) &&
         EventLevel(event) >= filter.least_level;
}

// Warns if nothing was printed for the requested rank or host: it may not exist.
void WarnIfNone(const LogFilter& filter, bool printed) {
  if (printed || filter.least_level > 0 || (!filter.rank && filter.host.empty())) return;
  LogWarning(StrCat("no line belongs to", filter.rank ? StrCat(" --rank=", *filter.rank) : "",
                    filter.host.empty() ? "" : StrCat(" --host=", filter.host)));
}

Status PrintEvents(const LogsRequest& request) {
  GACCD_ASSIGN_OR_RETURN(EventStream stream, EventStream::Open(request.folder, request.attempt,
                                                               EventStream::RankEvents::kRead));
  Output out;
  Follower follower(request);
  bool printed = false;
  while (true) {
    const bool last = follower.IsLast();
    Event event;
    while (stream.Next(&event)) {
      if (!Passes(event, request.filter)) continue;
      printed = true;
      GACCD_RETURN_IF_ERROR(out.Add(event.line + "\n"));
    }
    GACCD_RETURN_IF_ERROR(out.Flush());
    if (last) break;
    std::this_thread::sleep_for(kAgain);
    GACCD_RETURN_IF_ERROR(stream.Refresh());
  }
  Notes().Warn(stream.notes());
  WarnIfNone(request.filter, printed);
  follower.PrintWhy();
  return {};
}

// Prints the attempts in sequence; keeps the last one open, because it may continue.
class TextPrinter {
 public:
  explicit TextPrinter(const LogsRequest& request) : request_(request) {}

  Status PrintNew() {
    GACCD_ASSIGN_OR_RETURN(const AttemptList list, ListAttempts(request_.folder, request_.attempt));
    notes_.Warn(list.notes);
    const bool several = list.attempts.size() > 1;
    if (logs_) GACCD_RETURN_IF_ERROR(logs_->Refresh());
    GACCD_RETURN_IF_ERROR(PrintRest());
    for (const Attempt& attempt : list.attempts) {
      if (!seen_.insert(attempt.name).second) continue;
      GACCD_ASSIGN_OR_RETURN(logs_, TextLogs::Open(attempt, request_.filter));
      if (several) GACCD_RETURN_IF_ERROR(out_.Add(StrCat("# attempt ", attempt.name, "\n")));
      GACCD_RETURN_IF_ERROR(PrintRest());
      notes_.Warn(logs_->notes());
    }
    return out_.Flush();
  }
  [[nodiscard]] bool printed() const { return printed_; }

 private:
  Status PrintRest() {
    LogRecord record;
    while (logs_ && logs_->Next(&record)) {
      printed_ = true;
      GACCD_RETURN_IF_ERROR(out_.Add(record.text));
    }
    return {};
  }

  const LogsRequest& request_;
  Output out_;
  Notes notes_;
  std::set<std::string> seen_;
  std::optional<TextLogs> logs_;
  bool printed_ = false;
};

}  // namespace

Status RunLogsCommand(const LogsRequest& request) {
  if (request.events) return PrintEvents(request);
  TextPrinter printer(request);
  Follower follower(request);
  while (true) {
    const bool last = follower.IsLast();
    GACCD_RETURN_IF_ERROR(printer.PrintNew());
    if (last) break;
    std::this_thread::sleep_for(kAgain);
  }
  WarnIfNone(request.filter, printer.printed());
  follower.PrintWhy();
  return {};
}

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
        filter_.host.empty() || (index < hosts_.size() && IsSameHost(hosts_[index], filter_.host));
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
