// The last resort against calls of others that may never return (MPI_Init, MPI_Finalize,
// MPI_Abort, collective set-up calls without a non-blocking form): unless the timer is destroyed in
// time, it prints a message and ends the process without any clean-up.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace gaccd {

class ExitTimer {
 public:
  // `message` is written to stderr as one line. Where the system has no more threads there is no
  // limit: what ends then ends as it would without.
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
