// Threads beside the main one.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "collectives/base/result.h"
#include "collectives/base/strings.h"

namespace gaccd {

// Starts a thread that gets no signals: those of the process are for its main thread. kOs: "cannot
// start `name`: ..." when the system has no more threads. `body` is called once. Thread-safe.
template <typename Body>
Result<std::thread> StartThread(std::string_view name, Body body) {
  // A thread begins with the mask of its maker.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  Result<std::thread> started = std::thread();
  try {
    started = std::thread(std::move(body));
  } catch (const std::system_error& error) {
    started = Status(ErrorKind::kOs, StrCat("cannot start ", name, ": ", error.what()));
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return started;
}

}  // namespace gaccd
