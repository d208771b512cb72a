#include "collectives/base/thread.h"

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <mutex>

namespace gaccd {

Result<AbandonableThread> AbandonableThread::Start(std::string_view name,
                                                   std::function<void()> body) {
  const auto ended = std::make_shared<std::promise<void>>();
  AbandonableThread started;
  started.ended_ = ended->get_future();
  GACCD_ASSIGN_OR_RETURN(started.thread_,
                         StartThread(name, [ended, body = std::move(body)]() mutable {
                           body();
                           body = nullptr;  // destructors of captured objects may take time, too
                           ended->set_value();
                         }));
  return started;
}

bool AbandonableThread::WaitFor(std::chrono::milliseconds limit) const {
  return !thread_.joinable() || ended_.wait_for(limit) == std::future_status::ready;
}

bool AbandonableThread::Join(std::chrono::milliseconds limit) {
  if (!thread_.joinable()) return true;
  const bool ended = WaitFor(limit);
  ended ? thread_.join() : thread_.detach();
  return ended;
}

bool CallWithin(std::chrono::milliseconds limit, std::function<void()> body,
                const std::function<void()>& meanwhile) {
  using std::chrono::milliseconds;
  constexpr milliseconds kTurn{100};
  const auto end = std::chrono::steady_clock::now() + limit;
  const auto shared = std::make_shared<std::function<void()>>(std::move(body));
  auto thread = AbandonableThread::Start("a bounded call", [shared] {
    (*shared)();
    *shared = nullptr;
  });
  if (!thread.ok()) {
    (*shared)();
    return true;
  }
  const auto left = [end] {
    const auto rest = end - std::chrono::steady_clock::now();
    return std::max(milliseconds(0), std::chrono::ceil<milliseconds>(rest));
  };
  while (meanwhile && left() > milliseconds(0)) {
    meanwhile();
    if (thread->WaitFor(std::min(kTurn, left()))) break;
  }
  return thread->Join(left());
}

struct WorkerThread::State {
  std::function<void()> work;
  std::chrono::milliseconds period;
  std::mutex mutex;
  std::condition_variable changed;
  bool woken = false;
  bool end = false;
};

Result<std::unique_ptr<WorkerThread>> WorkerThread::Start(std::string_view name,
                                                          std::function<void()> work,
                                                          std::chrono::milliseconds period) {
  auto state = std::make_shared<State>();
  state->work = std::move(work);
  state->period = period;
  std::unique_ptr<WorkerThread> worker(new WorkerThread(state));
  GACCD_ASSIGN_OR_RETURN(worker->thread_, AbandonableThread::Start(name, [state] { Run(*state); }));
  return worker;
}

void WorkerThread::Run(State& state) {
  std::unique_lock lock(state.mutex);
  for (;;) {
    state.changed.wait_for(lock, state.period, [&] { return state.woken || state.end; });
    if (state.end) return;
    state.woken = false;
    lock.unlock();
    state.work();
    lock.lock();
  }
}

void WorkerThread::Wake() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->woken = true;
  }
  state_->changed.notify_one();
}

bool WorkerThread::End(std::chrono::milliseconds patience) {
  {
    const std::lock_guard lock(state_->mutex);
    state_->end = true;
  }
  state_->changed.notify_one();
  return thread_.Join(patience);
}

Result<CoreMask> AllowedCores(const GetAffinity& ask) {
  constexpr std::size_t kMaxWords = 1 << 14;  // a million cores
  for (std::size_t words = sizeof(cpu_set_t) / sizeof(CoreMask::value_type);; words *= 2) {
    CoreMask mask(words);
    if (ask(words * sizeof(mask[0]), reinterpret_cast<cpu_set_t*>(mask.data())) == 0) return mask;
    if (errno != EINVAL || words >= kMaxWords) {
      return Status(ErrorKind::kOs, StrCat("sched_getaffinity: ", std::strerror(errno)));
    }
  }
}

std::vector<std::int64_t> CoreNumbers(const CoreMask& mask) {
  std::vector<std::int64_t> numbers;
  for (std::size_t core = 0; core < 64 * mask.size(); ++core) {
    if ((mask[core / 64] >> (core % 64) & 1) != 0) {
      numbers.push_back(static_cast<std::int64_t>(core));
    }
  }
  return numbers;
}

}  // namespace gaccd
