// ExitTimer: ends the process if a call does not return in time, for calls that may hang (MPI_Init,
// MPI_Finalize, MPI_Abort, collective set-up calls without a non-blocking form). Unless the timer
// is destroyed in time, it prints a message and exits without clean-up.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace gaccd {

class ExitTimer {
 public:
  // `message` is written to stderr as one line, for which a second is left. If no thread can be
  // created there is no limit.
  ExitTimer(std::chrono::milliseconds limit, int exit_code, std::string message);
  ~ExitTimer();
  ExitTimer(const ExitTimer&) = delete;
  ExitTimer& operator=(const ExitTimer&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool in_time_ = false;
  std::thread thread_;
};

}  // namespace gaccd
