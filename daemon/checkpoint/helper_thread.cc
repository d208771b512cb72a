#include "daemon/checkpoint/helper_thread.h"

#include <pthread.h>
#include <signal.h>

#include <system_error>
#include <utility>

#include "collectives/base/strings.h"

namespace gaccd {

Result<std::unique_ptr<HelperThread>> HelperThread::Start(std::function<void()> beat,
                                                          std::chrono::milliseconds period) {
  std::unique_ptr<HelperThread> helper(new HelperThread(std::move(beat), period));
  // Signals of the process are for its main thread: a thread starts with the mask of its maker.
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  Status status;
  try {
    helper->thread_ = std::thread([raw = helper.get()] { raw->Run(); });
  } catch (const std::system_error& error) {
    status = Status(ErrorKind::kOs, StrCat("cannot start the checkpoint thread: ", error.what()));
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  GACCD_RETURN_IF_ERROR(status);
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
