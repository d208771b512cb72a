#include "daemon/control/stop_signals.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "collectives/base/strings.h"

namespace gaccd {
namespace {

// A handler reaches nothing but globals. Lock-free atomics are the only ones it may touch.
std::atomic<int> stop_requests{0};
std::atomic<int> last_stop_signal{0};
std::atomic<bool> save_requested{false};
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

void OnStop(int signal) {
  last_stop_signal.store(signal, std::memory_order_relaxed);
  stop_requests.fetch_add(1, std::memory_order_relaxed);
}

void OnSave(int /*signal*/) { save_requested.store(true, std::memory_order_relaxed); }

struct NamedSignal {
  std::string_view name;
  int number;
};
// Those that may be configured: the ones that schedulers and users send.
constexpr std::array<NamedSignal, 5> kSignals{{{"TERM", SIGTERM},
                                               {"USR1", SIGUSR1},
                                               {"USR2", SIGUSR2},
                                               {"ALRM", SIGALRM},
                                               {"XCPU", SIGXCPU}}};

Status Handle(int signal, void (*handler)(int), struct sigaction* old) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;  // reads and writes of libraries go on
  sigemptyset(&action.sa_mask);
  if (sigaction(signal, &action, old) == 0) return Status::Ok();
  return {ErrorKind::kOs, StrCat("sigaction ", SignalName(signal), ": ", std::strerror(errno))};
}

}  // namespace

std::string_view Name(StopWish wish) {
  switch (wish) {
    case StopWish::kNone:
      return "none";
    case StopWish::kSave:
      return "save";
    case StopWish::kStop:
      return "stop";
    case StopWish::kStopNow:
      return "stop now";
  }
  return "?";
}

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

std::string SignalNames(const std::vector<int>& signals) {
  std::string names;
  for (const int signal : signals) names += StrCat(names.empty() ? "" : ",", SignalName(signal));
  return names;
}

Result<std::unique_ptr<StopSignals>> StopSignals::Install(const std::vector<int>& stop_signals) {
  stop_requests = 0;
  last_stop_signal = 0;
  save_requested = false;
  std::unique_ptr<StopSignals> signals(new StopSignals);
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
  return signals;
}

StopSignals::~StopSignals() {
  for (const Old& old : old_) (void)sigaction(old.signal, &old.action, nullptr);
}

StopWish StopSignals::wish() const {
  const int stops = stop_requests.load(std::memory_order_relaxed);
  if (stops > 1) return StopWish::kStopNow;
  if (stops == 1) return StopWish::kStop;
  return save_requested.load(std::memory_order_relaxed) ? StopWish::kSave : StopWish::kNone;
}

int StopSignals::stop_signal() const { return last_stop_signal.load(std::memory_order_relaxed); }

void StopSignals::Saved() { save_requested = false; }

}  // namespace gaccd
