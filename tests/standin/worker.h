// Worker: a thread that does pieces of work in order. The thread of a stream.
//
// Posting orders the poster before the work, and nothing orders the work before the poster: neither
// locks nor reference counts are shared on the way back (see settings.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <vector>

#include "tests/standin/allocations.h"
#include "tests/standin/signal.h"

namespace gaccd::standin {

struct Work {
  const char* what = "";  // lives on
  std::function<void()> run;
  std::vector<Allocation*> touches;
  bool always = false;  // runs also when the device has failed: bookkeeping
  bool kernel = false;  // FailKernel() counts it
  int device = 0;
  Point* reach = nullptr;  // when it is done and the worker says so too
};

// Runs it here, with its checks, delay and errors.
void Perform(const Work& work);
// Between these two calls cudaFree() of what it touches is a mistake.
void BeginUse(const Work& work);
void EndUse(const Work& work);

class Worker {
 public:
  Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // Callers must exclude each other.
  void Post(Work work);
  // The thread ends after all that was posted, and deletes the worker.
  void Finish();
  // Pieces of work that are not done. Callers must exclude each other and posters.
  [[nodiscard]] std::uint32_t pending() const {
    return count_ - done_.load(std::memory_order_relaxed);
  }
  // Whether all that was posted is done; then its effects are visible.
  bool Idle();

 private:
  struct Node {
    Work work;
    bool last = false;
    std::atomic<Node*> next{nullptr};
  };
  ~Worker() = default;
  void Append(Node* node);
  void Loop();

  Node* tail_;               // the posters'
  Node* head_;               // the thread's: done already
  std::uint32_t count_ = 0;  // the posters'
  Signal posted_;            // wakes the thread
  std::atomic<std::uint32_t> done_{0};
};

}  // namespace gaccd::standin
