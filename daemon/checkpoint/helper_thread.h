// One thread that does tasks in the order they come.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "collectives/base/result.h"

namespace gaccd {

class HelperThread {
 public:
  // `beat`: called every `period`, between tasks; may be empty. kOs when no thread can be had.
  static Result<std::unique_ptr<HelperThread>> Start(std::function<void()> beat,
                                                     std::chrono::milliseconds period);
  ~HelperThread();  // finishes the task it is at; tasks behind it are dropped
  HelperThread(const HelperThread&) = delete;
  HelperThread& operator=(const HelperThread&) = delete;

  void Add(std::function<void()> task);

 private:
  HelperThread(std::function<void()> beat, std::chrono::milliseconds period)
      : beat_(std::move(beat)), period_(period) {}
  void Run();

  std::function<void()> beat_;
  std::chrono::milliseconds period_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> tasks_;
  bool end_ = false;
  std::thread thread_;
};

}  // namespace gaccd
