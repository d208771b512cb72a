// One thread that does tasks in the order they come.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <thread>

#include "collectives/base/result.h"

namespace gaccd {

// One thread makes it, ends it and destroys it.
class HelperThread {
 public:
  // What ~HelperThread() gives the task that is under way.
  static constexpr std::chrono::milliseconds kPatience{5'000};

  // `beat`: called every `period`, between tasks; may be empty. kOs when no thread can be had.
  static Result<std::unique_ptr<HelperThread>> Start(std::function<void()> beat,
                                                     std::chrono::milliseconds period);
  ~HelperThread();  // End(kPatience)
  HelperThread(const HelperThread&) = delete;
  HelperThread& operator=(const HelperThread&) = delete;

  // Thread-safe. A task must not throw, and shares the ownership of all that it touches, as does
  // `beat`: see End().
  void Add(std::function<void()> task);

  // Drops the tasks that are not begun and waits for the one under way, but not longer than
  // `patience`: the thread is then left alone with it and ends when it returns. Whether it has
  // ended. Later calls do nothing.
  bool End(std::chrono::milliseconds patience);

 private:
  struct State;  // shared with the thread
  explicit HelperThread(std::shared_ptr<State> state);
  static void Run(State& state);

  std::shared_ptr<State> state_;
  std::thread thread_;
};

}  // namespace gaccd
