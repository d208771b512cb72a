#include "daemon/telemetry/log.h"

#include <glog/logging.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <iomanip>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "collectives/base/strings.h"

namespace gaccd {
namespace {

// The log of a process is one, as its stderr is; this is the only state that outlives an object.
struct LogState {
  std::atomic<bool> to_file{false};
  std::atomic<std::int64_t> step{0};
  int rank = -1;     // -1: not known yet; set before to_file
  std::mutex mutex;  // of the hook, also while it runs
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
      << message;
}

void ToPeople(std::string_view level, std::string_view message, const std::source_location& where) {
  LogState& state = State();
  const std::lock_guard lock(state.mutex);
  if (state.hook) {
    state.hook({level, BaseName(where.file_name()), static_cast<int>(where.line()), message});
    return;
  }
  const std::string rank = state.rank < 0 ? "" : StrCat(" [rank ", state.rank, "]");
  const std::string line = StrCat("gaccd: ", level, rank, ": ", message, "\n");
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace

void LogInfo(std::string_view message, std::source_location where) {
  if (State().to_file.load(std::memory_order_acquire)) ToFile(google::GLOG_INFO, message, where);
}

void LogWarning(std::string_view message, std::source_location where) {
  if (State().to_file.load(std::memory_order_acquire)) ToFile(google::GLOG_WARNING, message, where);
  ToPeople("warning", message, where);
}

void LogError(std::string_view message, std::source_location where) {
  if (State().to_file.load(std::memory_order_acquire)) ToFile(google::GLOG_ERROR, message, where);
  ToPeople("error", message, where);
}

void StartTextLog(const std::string& log_dir, int rank) {
  LogState& state = State();
  if (log_dir.empty()) return;
  const std::lock_guard lock(state.mutex);  // ranks that are threads start it at the same time
  if (google::IsGoogleLoggingInitialized()) return;
  state.rank = rank;
  FLAGS_log_utc_time = true;
  FLAGS_stop_logging_if_full_disk = true;
  FLAGS_logfile_mode = 0640;
  FLAGS_stderrthreshold = google::GLOG_FATAL;  // stderr is served by ToPeople()
  FLAGS_logbuflevel = google::GLOG_INFO;       // infos are buffered: see FlushTextLog()
  char number[16];
  std::snprintf(number, sizeof(number), "r%05d", rank);
  const std::string base = StrCat(log_dir, "/", number, ".gaccd.INFO.");
  google::SetLogDestination(google::GLOG_INFO, base.c_str());
  // The one file holds all severities; only rank 0 makes the link gaccd.INFO.
  for (const google::LogSeverity severity :
       {google::GLOG_WARNING, google::GLOG_ERROR, google::GLOG_FATAL}) {
    google::SetLogDestination(severity, "");
    google::SetLogSymlink(severity, "");
  }
  google::SetLogSymlink(google::GLOG_INFO, rank == 0 ? "gaccd" : "");
  google::InitGoogleLogging("gaccd", &WritePrefix);
  state.to_file.store(true, std::memory_order_release);
}

void SetLogStep(std::int64_t step) { State().step.store(step, std::memory_order_relaxed); }

void FlushTextLog() {
  if (State().to_file.load(std::memory_order_acquire)) google::FlushLogFiles(google::GLOG_INFO);
}

void SetLogHook(std::function<void(const LogLine&)> hook) {
  LogState& state = State();
  const std::lock_guard lock(state.mutex);
  state.hook = std::move(hook);
}

}  // namespace gaccd
