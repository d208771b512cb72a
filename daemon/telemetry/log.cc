#include "daemon/telemetry/log.h"

#include <fcntl.h>
#include <glog/logging.h>
#include <unistd.h>

#include <atomic>
#include <iomanip>
#include <memory>
#include <mutex>
#include <utility>

#include "collectives/base/strings.h"
#include "daemon/telemetry/event_text.h"
#include "daemon/telemetry/line_writer.h"
#include "daemon/telemetry/terminal.h"

namespace gaccd {
namespace {

// The destination of glog. Its own files follow links, do not count lost lines, block their callers
// and ignore errors.
class LineFile : public google::base::Logger {
 public:
  explicit LineFile(std::unique_ptr<LineWriter> writer) : writer_(std::move(writer)) {}

  void Write(bool /*force_flush*/, time_t /*timestamp*/, const char* text,
             std::size_t size) override {
    writer_->Add({text, size});
  }
  void Flush() override {}  // LineWriter writes every line
  google::uint32 LogSize() override { return 0; }

  [[nodiscard]] LineWriter& writer() { return *writer_; }

 private:
  const std::unique_ptr<LineWriter> writer_;
};

std::string DroppedText(const LineStamp& /*last*/, const DroppedLines& dropped) {
  return StrCat("# ", Timestamp(), " ", dropped.lines, " lines are lost: ", dropped.reason);
}

// One per process, like its stderr: the only global state.
struct LogState {
  std::atomic<bool> to_file{false};
  std::atomic<std::int64_t> step{0};
  int rank = -1;             // -1: not known yet; set before to_file
  std::string sender;        // "rank 17 on node3"; empty: not known, or rank 0
  LineFile* file = nullptr;  // set before to_file
  TerminalOutput stderr_output{STDERR_FILENO};
  std::mutex mutex;  // held while the hook runs
  std::function<void(const LogLine&)> hook;
};

LogState& State() {
  static LogState& state = *new LogState;  // never destroyed: threads may log until the end
  return state;
}

// "I20261120 03:04:05.123456 r17 s400 file.cc:41]"
void WritePrefix(std::ostream& out, const google::LogMessageInfo& info, void* /*data*/) {
  const google::LogMessageTime& time = info.time;
  out << info.severity[0] << std::setfill('0') << std::setw(4) << 1900 + time.year() << std::setw(2)
      << 1 + time.month() << std::setw(2) << time.day() << ' ' << std::setw(2) << time.hour() << ':'
      << std::setw(2) << time.min() << ':' << std::setw(2) << time.sec() << '.' << std::setw(6)
      << time.usec() << std::setfill(' ') << " r" << State().rank << " s" << State().step.load()
      << ' ' << info.filename << ':' << info.line_number << ']';
}

std::string_view BaseName(std::string_view path) {
  return path.substr(path.rfind('/') + 1);  // npos + 1 == 0
}

void ToFile(google::LogSeverity severity, std::string_view message,
            const std::source_location& where) {
  google::LogMessage(where.file_name(), static_cast<int>(where.line()), severity).stream()
      << Printable(message);
}

// REQUIRES: state.mutex is held.
void WriteToStderr(LogState& state, std::string_view message) {
  const std::string sender = state.sender.empty() ? "" : StrCat(state.sender, ": ");
  state.stderr_output.Write(StrCat("gaccd: ", sender, "warning: ", Printable(message), "\n"));
}

void ToStderr(std::string_view message, const std::source_location& where) {
  LogState& state = State();
  const std::lock_guard lock(state.mutex);
  if (state.hook) {
    state.hook({"warning", BaseName(where.file_name()), static_cast<int>(where.line()), message});
    return;
  }
  WriteToStderr(state, message);
}

// "r00017.gaccd.INFO.20261120-030405.4711"
std::string FileName(int rank) {
  const std::string now = Timestamp();  // 2026-11-20T03:04:05.123456Z
  const auto part = [&](std::size_t at, std::size_t size) { return now.substr(at, size); };
  return StrCat(Format("r%05d.gaccd.INFO.", rank), part(0, 4), part(5, 2), part(8, 2), "-",
                part(11, 2), part(14, 2), part(17, 2), ".", ::getpid());
}

// Best effort: the link is a convenience.
void LinkTo(const std::string& name, const std::string& link) {
  ::unlink(link.c_str());
  [[maybe_unused]] const int made = ::symlink(name.c_str(), link.c_str());
}

}  // namespace

void LogInfo(std::string_view message, std::source_location where) {
  if (State().to_file.load(std::memory_order_acquire)) ToFile(google::GLOG_INFO, message, where);
}

void LogWarning(std::string_view message, std::source_location where) {
  if (State().to_file.load(std::memory_order_acquire)) ToFile(google::GLOG_WARNING, message, where);
  ToStderr(message, where);
}

void SetLogSender(std::string sender) {
  LogState& state = State();
  const std::lock_guard lock(state.mutex);
  state.sender = std::move(sender);
}

void StartTextLog(const std::string& log_dir, int rank, Modes modes) {
  LogState& state = State();
  if (log_dir.empty()) return;
  const std::lock_guard lock(state.mutex);  // ranks that are threads start it at the same time
  if (google::IsGoogleLoggingInitialized()) return;
  state.rank = rank;
  FLAGS_log_utc_time = true;
  FLAGS_stderrthreshold = google::GLOG_FATAL;  // ToStderr() writes to stderr
  const std::string name = FileName(rank);
  const std::string path = StrCat(log_dir, "/", name);
  auto file = OpenFile(path, O_WRONLY | O_APPEND | O_CREAT | O_EXCL, modes.file);
  if (!file.ok()) {
    WriteToStderr(
        state, StrCat(file.status().message(), "; there is no text log, only warnings on stderr"));
    return;
  }
  auto writer = LineWriter::Start(AppendFile(*std::move(file), path, modes.file), DroppedText);
  if (!writer.ok()) {
    WriteToStderr(state, StrCat(writer.status().message(),
                                "; there is no text log, only warnings on stderr"));
    return;
  }
  state.file = new LineFile(*std::move(writer));  // never destroyed, like glog
  for (const google::LogSeverity severity :
       {google::GLOG_INFO, google::GLOG_WARNING, google::GLOG_ERROR, google::GLOG_FATAL}) {
    // glog writes a line to the files of its severity and all lower ones; only INFO has a file.
    google::SetLogDestination(severity, severity == google::GLOG_INFO ? path.c_str() : "");
    google::SetLogSymlink(severity, "");
  }
  google::base::SetLogger(google::GLOG_INFO, state.file);
  google::InitGoogleLogging("gaccd", &WritePrefix);
  if (rank == 0) LinkTo(name, log_dir + "/gaccd.INFO");
  state.to_file.store(true, std::memory_order_release);
}

std::int64_t DroppedLogLines() {
  const LogState& state = State();
  return state.to_file.load(std::memory_order_acquire) ? state.file->writer().dropped() : 0;
}

bool FlushTextLog(std::chrono::milliseconds limit) {
  const LogState& state = State();
  return !state.to_file.load(std::memory_order_acquire) || state.file->writer().Flush(limit);
}

void SetLogStep(std::int64_t step) { State().step.store(step, std::memory_order_relaxed); }

void SetLogHook(std::function<void(const LogLine&)> hook) {
  LogState& state = State();
  const std::lock_guard lock(state.mutex);
  state.hook = std::move(hook);
}

}  // namespace gaccd
