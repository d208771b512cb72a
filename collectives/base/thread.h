// Threads besides the main thread.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <array>
#include <chrono>
#include <cstddef>
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

}  // namespace gaccd
