#include "daemon/telemetry/crash_handler.h"

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <string_view>

#include "collectives/base/strings.h"
#include "daemon/telemetry/event_text.h"

namespace gaccd {
namespace {

// Text in a fixed buffer; async-signal-safe.
class SafeText {
 public:
  void Add(std::string_view text) {
    for (const char c : text) {
      if (size_ < sizeof(text_)) text_[size_++] = c;
    }
  }
  void Add(std::int64_t number, int width = 1) {
    if (number < 0) {
      Add("-");
      number = -number;
    }
    char digits[20];
    int count = 0;
    do {
      digits[count++] = static_cast<char>('0' + number % 10);
      number /= 10;
    } while (number > 0);
    for (int i = count; i < width; ++i) Add("0");
    while (count > 0) Add({&digits[--count], 1});
  }
  [[nodiscard]] std::string_view text() const { return {text_, size_}; }

 private:
  char text_[kMaxLineBytes] = {};
  std::size_t size_ = 0;
};

// Like Timestamp(), but without gmtime_r(), which may take a lock.
void AddTimestamp(SafeText& out) {
  using std::chrono::duration_cast;
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  const std::chrono::sys_seconds seconds{std::chrono::seconds(now.tv_sec)};
  const auto day = std::chrono::floor<std::chrono::days>(seconds);
  const std::chrono::year_month_day date(day);
  const std::chrono::hh_mm_ss time(seconds - day);
  out.Add(static_cast<int>(date.year()), 4);
  out.Add("-");
  out.Add(static_cast<unsigned>(date.month()), 2);
  out.Add("-");
  out.Add(static_cast<unsigned>(date.day()), 2);
  out.Add("T");
  out.Add(time.hours().count(), 2);
  out.Add(":");
  out.Add(time.minutes().count(), 2);
  out.Add(":");
  out.Add(time.seconds().count(), 2);
  out.Add(".");
  out.Add(now.tv_nsec / 1000, 6);
  out.Add("Z");
}

std::string_view SignalText(int signal) {
  switch (signal) {
    case SIGSEGV:
      return "SIGSEGV: access to memory that is not mapped";
    case SIGBUS:
      return "SIGBUS: access to mapped memory that has no content";
    case SIGILL:
      return "SIGILL: an instruction this processor does not have";
    case SIGFPE:
      return "SIGFPE: an integer division by zero or overflow";
    case SIGABRT:
      return "SIGABRT: the process called abort()";
    default:
      return "a fatal signal";
  }
}

void WriteOut(int file, const SafeText& text) {
  [[maybe_unused]] const ssize_t written = ::write(file, text.text().data(), text.text().size());
}

constexpr int kDataExit = static_cast<int>(ErrorKind::kData);
// The time limit for writing the record.
constexpr unsigned kMaxSeconds = 3;

}  // namespace

std::atomic<CrashHandler*> CrashHandler::active_{nullptr};
std::atomic<bool> CrashHandler::writing_{false};

CrashHandler::CrashHandler(std::string path, const RunIdentity& who, const RankPosition& place,
                           unsigned mode)
    : path_(std::move(path)),
      who_(Printable(StrCat("gaccd: rank ", who.rank, " on ", who.host, ": "))),
      place_(place),
      mode_(mode) {
  // Formatted once; the handler replaces the time, and everything from "step" on.
  const std::string time = "0000-00-00T00:00:00.000000Z";
  const std::string line = EventJson(who, {time, 1, "error"}, Failure{});
  const std::size_t at = line.find(time);
  before_time_ = line.substr(0, at);
  after_time_ = line.substr(at + time.size());
  after_time_.resize(after_time_.find("\"step\":"));
}

std::unique_ptr<CrashHandler> CrashHandler::Install(const std::string& path, const RunIdentity& who,
                                                    const RankPosition& place, unsigned mode) {
  std::unique_ptr<CrashHandler> handler(new CrashHandler(path, who, place, mode));
  CrashHandler* none = nullptr;
  if (!active_.compare_exchange_strong(none, handler.get())) return nullptr;
  handler->stack_.Use();
  struct sigaction action {};
  action.sa_sigaction = &CrashHandler::OnSignal;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  ::sigemptyset(&action.sa_mask);
  for (std::size_t i = 0; i < kFatalSignals.size(); ++i) {
    ::sigaction(kFatalSignals[i], &action, &handler->old_fatal_[i]);
  }
  struct sigaction ignore {};
  ignore.sa_handler = SIG_IGN;
  for (std::size_t i = 0; i < kIgnored.size(); ++i) {
    ::sigaction(kIgnored[i], &ignore, &handler->old_ignored_[i]);
  }
  return handler;
}

CrashHandler::~CrashHandler() {
  CrashHandler* self = this;
  if (!active_.compare_exchange_strong(self, nullptr)) return;
  Restore();
  for (std::size_t i = 0; i < kIgnored.size(); ++i) {
    ::sigaction(kIgnored[i], &old_ignored_[i], nullptr);
  }
}

void CrashHandler::Restore() {
  for (std::size_t i = 0; i < kFatalSignals.size(); ++i) {
    ::sigaction(kFatalSignals[i], &old_fatal_[i], nullptr);
  }
}

// Returning executes the failed instruction again, now with the previous signal action. A signal
// that was sent by a process must be raised again.
void CrashHandler::OnSignal(int signal, siginfo_t* info, void* /*context*/) {
  const int saved_errno = errno;
  CrashHandler* handler = active_.exchange(nullptr);
  if (handler != nullptr) {
    writing_ = true;
    const bool of_data = signal == SIGBUS && info->si_code > 0;
    const MappedPlace mapped = of_data ? FindMapped(info->si_addr) : MappedPlace{};
    handler->Write(signal, mapped);
    if (mapped.path != nullptr) ::_exit(kDataExit);
    handler->Restore();
    writing_ = false;
  }
  // Waits up to 1 s for another thread that is writing the record.
  for (int i = 0; i < 100 && writing_; ++i) {
    const timespec turn{.tv_sec = 0, .tv_nsec = 10'000'000};
    ::nanosleep(&turn, nullptr);
  }
  if (info->si_code <= 0 || handler == nullptr) ::raise(signal);
  errno = saved_errno;
}

void CrashHandler::Write(int signal, const MappedPlace& mapped) const {
  SafeText what;
  what.Add(SignalText(signal));
  if (mapped.path != nullptr) {
    what.Add(": '");
    what.Add(mapped.path);
    what.Add("', byte ");
    what.Add(mapped.byte);
    what.Add("; was the file truncated, or is the disk failing?");
  }
  SafeText line;
  line.Add(who_);
  if (mapped.path != nullptr) line.Add("error (data, exit 65): ");
  line.Add(what.text());
  line.Add("\n");

  // SIGALRM ends the process if a file system does not respond; stderr may be a file.
  ::signal(SIGALRM, SIG_DFL);
  ::alarm(kMaxSeconds);
  WriteOut(STDERR_FILENO, line);
  const int file =
      ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode_);
  if (file < 0) {
    ::alarm(0);
    return;
  }
  SafeText text;
  text.Add(before_time_);
  AddTimestamp(text);
  text.Add(after_time_);
  text.Add(mapped.path != nullptr ? "\"exit\":" : "\"signal\":");
  text.Add(mapped.path != nullptr ? kDataExit : signal);
  text.Add(",\"step\":");
  text.Add(place_.step.load(std::memory_order_relaxed));
  text.Add(",\"phase\":\"");
  text.Add(place_.phase.load(std::memory_order_relaxed));
  text.Add("\",\"micro_step\":");
  text.Add(place_.micro_step.load(std::memory_order_relaxed));
  text.Add(",\"msg\":\"");
  text.Add(what.text());
  text.Add("\"}\n");
  WriteOut(file, text);
  ::fsync(file);
  ::close(file);
  ::alarm(0);
}

}  // namespace gaccd
