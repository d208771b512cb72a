#include "daemon/telemetry/crash_handler.h"

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <string_view>

#include "daemon/data/mapped_file.h"
#include "daemon/telemetry/event_text.h"

namespace gaccd {
namespace {

// Text in a fixed buffer, by means that a signal handler may use.
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
  [[nodiscard]] const char* data() const { return text_; }
  [[nodiscard]] std::size_t size() const { return size_; }

 private:
  char text_[kMaxLineBytes] = {};
  std::size_t size_ = 0;
};

// As Timestamp(); gmtime_r() may take a lock, calendar arithmetic does not.
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
      return "SIGSEGV: memory that is not mapped was used";
    case SIGBUS:
      return "SIGBUS: a mapped file or memory was not there";
    case SIGILL:
      return "SIGILL: an instruction this processor does not have";
    case SIGFPE:
      return "SIGFPE: an integer operation without a result";
    case SIGABRT:
      return "SIGABRT: the process gave up";
    default:
      return "a fatal signal";
  }
}

}  // namespace

std::atomic<CrashHandler*> CrashHandler::active_{nullptr};

CrashHandler::CrashHandler(std::string path, const RunIdentity& who, const Place& place,
                           unsigned mode)
    : path_(std::move(path)), place_(place), mode_(mode), stack_(kStackBytes) {
  // Rendered once, with a time that is exchanged in the handler. Its "msg" comes last.
  const std::string time = "0000-00-00T00:00:00.000000Z";
  const std::string line = FailureJson(who, {time, 1, "error"}, {});
  const std::size_t at = line.find(time);
  before_time_ = line.substr(0, at);
  after_time_ = line.substr(at + time.size());
  after_time_.resize(after_time_.find("\"step\":"));
}

std::unique_ptr<CrashHandler> CrashHandler::Install(const std::string& path, const RunIdentity& who,
                                                    const Place& place, unsigned mode) {
  std::unique_ptr<CrashHandler> handler(new CrashHandler(path, who, place, mode));
  CrashHandler* none = nullptr;
  if (!active_.compare_exchange_strong(none, handler.get())) {
    handler->stack_.clear();  // nothing to give back
    return nullptr;
  }
  stack_t stack{};
  stack.ss_sp = handler->stack_.data();
  stack.ss_size = handler->stack_.size();
  ::sigaltstack(&stack, &handler->old_stack_);
  struct sigaction action {};
  action.sa_sigaction = &CrashHandler::OnSignal;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  ::sigemptyset(&action.sa_mask);
  for (std::size_t i = 0; i < kFatal.size(); ++i) {
    ::sigaction(kFatal[i], &action, &handler->old_fatal_[i]);
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
  ::sigaltstack(&old_stack_, nullptr);
}

void CrashHandler::Restore() {
  for (std::size_t i = 0; i < kFatal.size(); ++i) {
    ::sigaction(kFatal[i], &old_fatal_[i], nullptr);
  }
}

// Returning from it runs the instruction that failed once more, now with the action that was there
// before. A signal that somebody sent does not come again by itself.
void CrashHandler::OnSignal(int signal, siginfo_t* info, void* /*context*/) {
  const int saved_errno = errno;
  CrashHandler* handler = active_.exchange(nullptr);
  if (handler != nullptr) {
    handler->Write(signal, info->si_code > 0 ? info->si_addr : nullptr);
    handler->Restore();
  }
  if (info->si_code <= 0 || handler == nullptr) ::raise(signal);
  errno = saved_errno;
}

void CrashHandler::Write(int signal, const void* address) const {
  const int file =
      ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode_);
  if (file < 0) return;
  SafeText text;
  text.Add(before_time_);
  AddTimestamp(text);
  text.Add(after_time_);
  text.Add("\"signal\":");
  text.Add(signal);
  text.Add(",\"step\":");
  text.Add(place_.step.load(std::memory_order_relaxed));
  text.Add(",\"phase\":\"");
  text.Add(place_.phase.load(std::memory_order_relaxed));
  text.Add("\",\"micro_step\":");
  text.Add(place_.micro_step.load(std::memory_order_relaxed));
  text.Add(",\"msg\":\"");
  text.Add(SignalText(signal));
  const MappedPlace mapped = signal == SIGBUS ? FindMapped(address) : MappedPlace{};
  if (mapped.path != nullptr) {
    text.Add(": '");
    text.Add(mapped.path);
    text.Add("', byte ");
    text.Add(mapped.byte);
    text.Add("; was it made shorter, or is the disk failing?");
  }
  text.Add("\"}\n");
  [[maybe_unused]] const ssize_t written = ::write(file, text.data(), text.size());
  ::fsync(file);
  ::close(file);
}

}  // namespace gaccd
