#include "collectives/base/worker_thread.h"

#include <condition_variable>
#include <mutex>
#include <utility>

namespace gaccd {

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

}  // namespace gaccd
