#include "daemon/stop/stop_signals.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <ctime>

#include "collectives/base/strings.h"

namespace gaccd {
namespace {

// A handler can only access globals, and only lock-free atomics are safe.
std::atomic<int> stop_requests{0};
std::atomic<int> last_stop_signal{0};
std::atomic<bool> save_requested{false};
std::atomic<std::uint64_t> seen{0};          // bit n: signal n was received
std::atomic<std::int64_t> last_stop_ns{0};   // time at which the last request began
std::atomic<std::int64_t> first_term_ns{0};  // 0: never
std::atomic<std::int64_t> burst_ns{0};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

std::int64_t MonotonicNs() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);  // async-signal-safe
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

void OnStop(int signal) {
  constexpr std::int64_t kInterruptBurstDivisor = 20;
  const std::int64_t now = MonotonicNs();
  std::int64_t never = 0;
  if (signal == SIGTERM) first_term_ns.compare_exchange_strong(never, now);
  seen.fetch_or(std::uint64_t{1} << static_cast<unsigned>(signal));
  last_stop_signal.store(signal);
  const std::int64_t burst = signal == SIGINT ? burst_ns / kInterruptBurstDivisor : burst_ns.load();
  if (stop_requests.load() > 0 && now - last_stop_ns.load() < burst) return;
  last_stop_ns.store(now);
  stop_requests.fetch_add(1);
}

void OnSave(int /*signal*/) { save_requested.store(true, std::memory_order_relaxed); }

struct NamedSignal {
  std::string_view name;
  int number;
};
// Signals that may be configured: those that schedulers and users send.
constexpr std::array<NamedSignal, 5> kSignals{{{"TERM", SIGTERM},
                                               {"USR1", SIGUSR1},
                                               {"USR2", SIGUSR2},
                                               {"ALRM", SIGALRM},
                                               {"XCPU", SIGXCPU}}};

Status Handle(int signal, void (*handler)(int), struct sigaction* old) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART | SA_ONSTACK;  // interrupted library reads and writes are restarted
  sigemptyset(&action.sa_mask);
  if (sigaction(signal, &action, old) == 0) return Status::Ok();
  return {ErrorKind::kOs, StrCat("sigaction ", SignalName(signal), ": ", std::strerror(errno))};
}

}  // namespace

Result<std::vector<int>> ParseSignals(std::string_view names) {
  std::vector<int> signals;
  while (!names.empty()) {
    const std::size_t comma = std::min(names.find(','), names.size());
    std::string_view name = names.substr(0, comma);
    names.remove_prefix(std::min(comma + 1, names.size()));
    if (name.starts_with("SIG")) name.remove_prefix(3);
    const auto found =
        std::find_if(kSignals.begin(), kSignals.end(),
                     [name](const NamedSignal& known) { return known.name == name; });
    if (found == kSignals.end()) {
      return Status(ErrorKind::kUsage,
                    StrCat("expected signals among TERM, USR1, USR2, ALRM, XCPU, "
                           "separated by commas, found '",
                           name, "'"));
    }
    if (std::find(signals.begin(), signals.end(), found->number) == signals.end()) {
      signals.push_back(found->number);
    }
  }
  return signals;
}

std::string SignalName(int signal) {
  const char* const name = sigabbrev_np(signal);
  return name == nullptr ? StrCat("signal ", signal) : StrCat("SIG", name);
}

Result<std::unique_ptr<StopSignals>> StopSignals::Install(const std::vector<int>& stop_signals,
                                                          std::chrono::milliseconds burst) {
  stop_requests = 0;
  last_stop_signal = 0;
  save_requested = false;
  seen = 0;
  last_stop_ns = 0;
  first_term_ns = 0;
  burst_ns = std::chrono::nanoseconds(burst).count();
  std::unique_ptr<StopSignals> signals(new StopSignals);
  signals->stack_.Use();
  std::vector<int> stops = stop_signals;
  stops.push_back(SIGINT);
  for (const int signal : stops) {
    Old old{signal, {}};
    GACCD_RETURN_IF_ERROR(Handle(signal, OnStop, &old.action));
    signals->old_.push_back(old);
  }
  Old old{SIGHUP, {}};
  GACCD_RETURN_IF_ERROR(Handle(SIGHUP, OnSave, &old.action));
  signals->old_.push_back(old);
  sigset_t handled;  // the caller of this program may have blocked them
  sigemptyset(&handled);
  for (const Old& one : signals->old_) sigaddset(&handled, one.signal);
  pthread_sigmask(SIG_UNBLOCK, &handled, nullptr);
  return signals;
}

StopSignals::~StopSignals() {
  for (const Old& old : old_) (void)sigaction(old.signal, &old.action, nullptr);
}

StopRequest StopSignals::request() const {
  const int stops = stop_requests.load(std::memory_order_relaxed);
  if (stops > 1) return StopRequest::kStopNow;
  if (stops == 1) return StopRequest::kStop;
  return save_requested.load(std::memory_order_relaxed) ? StopRequest::kSave : StopRequest::kNone;
}

int StopSignals::stop_signal() const { return last_stop_signal.load(std::memory_order_relaxed); }

bool StopSignals::was_received(int signal) const {
  return (seen.load() >> static_cast<unsigned>(signal) & 1) != 0;
}

std::optional<std::chrono::steady_clock::time_point> StopSignals::term_time() const {
  const std::int64_t first = first_term_ns.load();
  if (first == 0) return std::nullopt;
  return std::chrono::steady_clock::time_point(std::chrono::nanoseconds(first));
}

void StopSignals::Saved() { save_requested = false; }

}  // namespace gaccd
