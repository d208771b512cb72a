#include "daemon/stop/stop_requests.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <ctime>
#include <mutex>
#include <utility>

#include "collectives/base/files.h"
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

struct RequestFiles::State {
  State(std::string folder, RequestFilesOptions how)
      : run_dir(std::move(folder)), options(std::move(how)) {}
  void Work();
  [[nodiscard]] StopRequest ReadRequests() const;
  [[nodiscard]] Status RemoveSave() const;

  const std::string run_dir;
  const RequestFilesOptions options;
  std::atomic<StopRequest> request = StopRequest::kNone;  // written under `mutex`
  std::mutex mutex;                                       // protects everything below
  std::condition_variable changed;
  bool looked = false;
  bool served = false;  // SAVE must be removed
};

RequestFiles::RequestFiles(std::string run_dir, RequestFilesOptions options) {
  constexpr std::chrono::seconds kFirstLook{1};
  if (run_dir.empty()) return;
  auto state = std::make_shared<State>(std::move(run_dir), std::move(options));
  auto worker = WorkerThread::Start(
      "the thread of STOP and SAVE", [state] { state->Work(); }, state->options.pause);
  if (!worker.ok()) {
    if (state->options.warn) {
      state->options.warn(
          StrCat("the files STOP and SAVE are not checked: ", worker.status().message()));
    }
    return;
  }
  worker_ = *std::move(worker);
  worker_->Wake();
  state_ = std::move(state);
  std::unique_lock lock(state_->mutex);
  state_->changed.wait_for(lock, kFirstLook, [this] { return state_->looked; });
}

RequestFiles::~RequestFiles() {
  if (worker_) worker_->End(kPatience);
}

void RequestFiles::State::Work() {
  std::unique_lock lock(mutex);
  const bool remove = std::exchange(served, false);
  lock.unlock();
  const Status removed = remove ? RemoveSave() : Status::Ok();
  if (!removed.ok() && options.warn) {
    options.warn(
        StrCat("the request is carried out, but its file cannot be removed: ", removed.message()));
  }
  const StopRequest found = ReadRequests();
  lock.lock();
  if (!served) request = found;  // otherwise it may have seen the SAVE that was served meanwhile
  looked = true;
  changed.notify_all();
}

StopRequest RequestFiles::State::ReadRequests() const {
  const auto exists = [this](const std::string& path) {
    return options.exists ? options.exists(path) : PathExists(path);
  };
  if (exists(StrCat(run_dir, "/STOP"))) return StopRequest::kStop;
  return exists(StrCat(run_dir, "/SAVE")) ? StopRequest::kSave : StopRequest::kNone;
}

Status RequestFiles::State::RemoveSave() const {
  const std::string path = StrCat(run_dir, "/SAVE");
  if (unlink(path.c_str()) == 0 || errno == ENOENT) return Status::Ok();
  return ErrnoStatus("remove", path);
}

StopRequest RequestFiles::request() const {
  return state_ ? state_->request.load() : StopRequest::kNone;
}

void RequestFiles::Saved() {
  if (!state_) return;
  {
    const std::lock_guard lock(state_->mutex);
    state_->served = true;
    if (state_->request == StopRequest::kSave) state_->request = StopRequest::kNone;
  }
  worker_->Wake();
}

std::optional<TimeLeft::Seconds> TimeLeft::least() const {
  if (!job) return grace;
  if (!grace) return job;
  return std::min(*job, *grace);
}

TimeLeft FindTimeLeft(std::optional<std::chrono::steady_clock::time_point> job_end,
                      std::chrono::steady_clock::time_point now,
                      std::optional<TimeLeft::Seconds> since_term, TimeLeft::Seconds term_budget) {
  TimeLeft left;
  if (job_end) left.job = *job_end - now;
  if (since_term) left.grace = term_budget - *since_term;
  return left;
}

TimeLeft::Seconds NeededForSave(TimeLeft::Seconds save) {
  return 1.5 * save + TimeLeft::Seconds(1);
}

bool SaveFits(const TimeLeft& left, TimeLeft::Seconds save) {
  const auto least = left.least();
  return !least || *least >= NeededForSave(save);
}

}  // namespace gaccd
