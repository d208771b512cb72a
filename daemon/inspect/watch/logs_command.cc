#include "daemon/inspect/watch/logs_command.h"

#include <chrono>
#include <cstdio>
#include <functional>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include "collectives/base/print.h"
#include "collectives/base/strings.h"
#include "daemon/inspect/watch/event_stream.h"
#include "daemon/inspect/watch/run_state.h"
#include "daemon/inspect/watch/slurm_facts.h"
#include "daemon/telemetry/log.h"

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
         (filter.host.empty() || IsHost(event.Text("host"), filter.host)) &&
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

}  // namespace gaccd
