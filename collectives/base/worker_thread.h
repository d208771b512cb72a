// WorkerThread: calls a function repeatedly on a separate thread, so that callers never wait for a
// file system that does not respond.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string_view>

#include "collectives/base/bounded_call.h"
#include "collectives/base/result.h"

namespace gaccd {

// Must be created, ended and destroyed by the same thread.
class WorkerThread {
 public:
  // `work` is called after every Wake(), and every `period`. It must not throw, and must share
  // ownership of everything it uses: see End(). kOs if no thread can be created.
  static Result<std::unique_ptr<WorkerThread>> Start(std::string_view name,
                                                     std::function<void()> work,
                                                     std::chrono::milliseconds period = kNever);
  ~WorkerThread() { End(kPatience); }
  WorkerThread(const WorkerThread&) = delete;
  WorkerThread& operator=(const WorkerThread&) = delete;

  // Requests a call of `work` that begins after this. Thread-safe.
  void Wake();
  // Starts no more calls and waits up to `patience` for the current one. If it has not returned,
  // abandons the thread, which ends when it returns. Returns whether the thread has ended; true if
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
