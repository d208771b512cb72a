// Threads besides the main thread, and the cores of a thread.
#pragma once

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "collectives/base/result.h"
#include "collectives/base/strings.h"

namespace gaccd {

// Signals caused by a thread itself, which end the process.
inline constexpr std::array kFatalSignals{SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};

// An alternate stack for signal handlers of a thread (SA_ONSTACK), so that they run even after a
// stack overflow. Use() and the destructor must be called on that thread.
class SignalStack {
 public:
  SignalStack() : memory_(kBytes) {}
  ~SignalStack() {
    if (used_) ::sigaltstack(&before_, nullptr);
  }
  SignalStack(const SignalStack&) = delete;
  SignalStack& operator=(const SignalStack&) = delete;

  void Use() {
    stack_t stack{};
    stack.ss_sp = memory_.data();
    stack.ss_size = memory_.size();
    used_ = ::sigaltstack(&stack, &before_) == 0;
  }

 private:
  static constexpr std::size_t kBytes = 64 << 10;

  std::vector<std::byte> memory_;
  bool used_ = false;
  stack_t before_{};
};

// Starts a thread that receives no signals except kFatalSignals: signals of the process are handled
// by the main thread. `body` is called once. kOs: "cannot start `name`: ..." if no thread could be
// created within 0.1 s. It retries because the kernel counts a joined thread towards the limit
// until it has removed it. Thread-safe.
template <typename Body>
Result<std::thread> StartThread(std::string_view name, Body body) {
  const auto shared_body = std::make_shared<Body>(std::move(body));
  // A thread inherits the signal mask of its creator.
  sigset_t blocked;
  sigset_t before;
  sigfillset(&blocked);
  for (const int fatal : kFatalSignals) sigdelset(&blocked, fatal);
  pthread_sigmask(SIG_SETMASK, &blocked, &before);
  Result<std::thread> started = std::thread();
  for (int tries = 1;; ++tries) {
    try {
      started = std::thread([shared_body] {
        SignalStack stack;
        stack.Use();
        (*shared_body)();
      });
      break;
    } catch (const std::system_error& error) {
      if (error.code() != std::errc::resource_unavailable_try_again || tries == 20) {
        started = Status(ErrorKind::kOs, StrCat("cannot start ", name, ": ", error.what()));
        break;
      }
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return started;
}

// Calls that may never return, for example to a file system that does not respond. They run on a
// separate thread, which is abandoned after a time limit.

// Used by one thread. Call Join() before destroying what was started.
class AbandonableThread {
 public:
  AbandonableThread() = default;  // not started

  // `body` must share ownership of everything it uses. Errors: those of StartThread().
  static Result<AbandonableThread> Start(std::string_view name, std::function<void()> body);

  // Waits up to `limit` until `body` has returned. Returns whether it has; true if not started.
  [[nodiscard]] bool WaitFor(std::chrono::milliseconds limit) const;

  // Waits up to `limit` until `body` has returned. If it has not, abandons the thread, which ends
  // when `body` returns. Returns whether it has ended; true if not started. Later calls do nothing.
  bool Join(std::chrono::milliseconds limit);

 private:
  std::thread thread_;
  std::future<void> ended_;
};

// Calls `body` on such a thread and returns whether it has returned within `limit`. `meanwhile`, if
// set, is called on the calling thread, at once and then every 0.1 s. If no thread can be created,
// `body` is called on the calling thread, without a limit. Thread-safe.
[[nodiscard]] bool CallWithin(std::chrono::milliseconds limit, std::function<void()> body,
                              const std::function<void()>& meanwhile = nullptr);

// WorkerThread: calls a function repeatedly on a separate thread, so that callers never wait for a
// file system that does not respond.

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

// The cores that this thread may run on, for any number of cores: cpu_set_t ends at core 1023, and
// the kernel rejects it on larger machines.

// Core c is bit c % 64 of word c / 64. All threads of a machine have masks of the same length.
using CoreMask = std::vector<std::uint64_t>;

// kOs with the system's message. ask: sched_getaffinity(2) of this thread; tests replace it.
using GetAffinity = std::function<int(std::size_t bytes, cpu_set_t* mask)>;
Result<CoreMask> AllowedCores(const GetAffinity& ask = [](std::size_t bytes, cpu_set_t* mask) {
  return ::sched_getaffinity(0, bytes, mask);
});

// The numbers of the cores, ascending.
[[nodiscard]] std::vector<std::int64_t> CoreNumbers(const CoreMask& mask);

}  // namespace gaccd
