#include "daemon/checkpoint/helper_thread.h"

#include <utility>

#include "collectives/base/thread.h"

namespace gaccd {

Result<std::unique_ptr<HelperThread>> HelperThread::Start(std::function<void()> beat,
                                                          std::chrono::milliseconds period) {
  std::unique_ptr<HelperThread> helper(new HelperThread(std::move(beat), period));
  GACCD_ASSIGN_OR_RETURN(
      helper->thread_, StartThread("the checkpoint thread", [raw = helper.get()] { raw->Run(); }));
  return helper;
}

HelperThread::~HelperThread() {
  {
    const std::lock_guard lock(mutex_);
    end_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void HelperThread::Add(std::function<void()> task) {
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  wake_.notify_all();
}

void HelperThread::Run() {
  auto last_beat = std::chrono::steady_clock::now();
  std::unique_lock lock(mutex_);
  while (!end_) {
    wake_.wait_until(lock, last_beat + period_, [this] { return end_ || !tasks_.empty(); });
    if (end_) return;
    std::function<void()> task;
    if (!tasks_.empty()) {
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    lock.unlock();
    if (task) task();
    if (const auto now = std::chrono::steady_clock::now(); now - last_beat >= period_) {
      last_beat = now;
      if (beat_) beat_();
    }
    lock.lock();
  }
}

}  // namespace gaccd
