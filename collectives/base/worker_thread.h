// WorkerThread: calls a function now and then on a thread of its own, so that who wakes it never
// waits for a file system that does not answer.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string_view>

#include "collectives/base/bounded_call.h"
#include "collectives/base/result.h"

namespace gaccd {

// One thread makes it, ends it and destroys it.
class WorkerThread {
 public:
  // `work` is called after every Wake(), and every `period`. It must not throw, and shares the
  // ownership of all that it touches: see End(). kOs when no thread can be had.
  static Result<std::unique_ptr<WorkerThread>> Start(std::string_view name,
                                                     std::function<void()> work,
                                                     std::chrono::milliseconds period = kNever);
  ~WorkerThread() { End(kPatience); }
  WorkerThread(const WorkerThread&) = delete;
  WorkerThread& operator=(const WorkerThread&) = delete;

  // `work` is called once more, by a call that begins after this one. Thread-safe.
  void Wake();
  // Begins no more call and waits for the one under way, but not longer than `patience`: the
  // thread is then left behind with it, and ends when it returns. Whether it has ended; true where
  // End() was called before.
  bool End(std::chrono::milliseconds patience);

  static constexpr std::chrono::milliseconds kPatience{5'000};
  static constexpr std::chrono::milliseconds kNever = std::chrono::hours(24 * 365);

 private:
  struct State;  // shared with the thread
  explicit WorkerThread(std::shared_ptr<State> state) : state_(std::move(state)) {}
  static void Run(State& state);

  const std::shared_ptr<State> state_;
  AbandonableThread thread_;
};

}  // namespace gaccd
