#include "daemon/checkpoint/helper_thread.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <utility>

#include "collectives/base/thread.h"

namespace gaccd {

struct HelperThread::State {
  std::function<void()> beat;
  std::chrono::milliseconds period;
  std::mutex mutex;
  std::condition_variable wake;  // of the thread, and of End()
  std::deque<std::function<void()>> tasks;
  bool end = false;
  bool ended = false;
};

HelperThread::HelperThread(std::shared_ptr<State> state) : state_(std::move(state)) {}

Result<std::unique_ptr<HelperThread>> HelperThread::Start(std::function<void()> beat,
                                                          std::chrono::milliseconds period) {
  auto state = std::make_shared<State>();
  state->beat = std::move(beat);
  state->period = period;
  std::unique_ptr<HelperThread> helper(new HelperThread(state));
  GACCD_ASSIGN_OR_RETURN(helper->thread_,
                         StartThread("the checkpoint thread", [state] { Run(*state); }));
  return helper;
}

HelperThread::~HelperThread() { End(kPatience); }

void HelperThread::Add(std::function<void()> task) {
  {
    const std::lock_guard lock(state_->mutex);
    state_->tasks.push_back(std::move(task));
  }
  state_->wake.notify_all();
}

bool HelperThread::End(std::chrono::milliseconds patience) {
  bool ended = false;
  {
    std::unique_lock lock(state_->mutex);
    state_->end = true;
    state_->tasks.clear();
    state_->wake.notify_all();
    if (thread_.joinable()) {
      state_->wake.wait_for(lock, patience, [this] { return state_->ended; });
    }
    ended = state_->ended;
  }
  if (thread_.joinable()) ended ? thread_.join() : thread_.detach();
  return ended;
}

void HelperThread::Run(State& state) {
  auto last_beat = std::chrono::steady_clock::now();
  std::unique_lock lock(state.mutex);
  while (!state.end) {
    state.wake.wait_until(lock, last_beat + state.period,
                          [&] { return state.end || !state.tasks.empty(); });
    if (state.end) break;
    std::function<void()> task;
    if (!state.tasks.empty()) {
      task = std::move(state.tasks.front());
      state.tasks.pop_front();
    }
    lock.unlock();
    if (task) task();
    task = nullptr;  // what it owns may need the time of a destructor
    if (const auto now = std::chrono::steady_clock::now(); now - last_beat >= state.period) {
      last_beat = now;
      if (state.beat) state.beat();
    }
    lock.lock();
  }
  state.ended = true;
  state.wake.notify_all();
}

}  // namespace gaccd
