// A thread pool that processes the rows of a micro-batch.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "collectives/base/result.h"

namespace gaccd {

class RowThreads {
 public:
  using Body = std::function<void(std::size_t row)>;

  // threads: at least 1, including the caller of ForEach(). kOs if a thread cannot be started.
  static Result<std::unique_ptr<RowThreads>> Start(std::int64_t threads);
  ~RowThreads();
  RowThreads(const RowThreads&) = delete;
  RowThreads& operator=(const RowThreads&) = delete;

  // With the caller of ForEach().
  [[nodiscard]] std::int64_t count() const { return std::ssize(threads_) + 1; }

  // Calls body(0), ..., body(rows - 1), on any of the threads and in any order, and waits for all
  // of them. `body` must not throw. Thread-safe: concurrent loops run one after another.
  void ForEach(std::size_t rows, const Body& body);

 private:
  RowThreads() = default;
  void Run();
  void ProcessRows();

  std::mutex loop_;  // held by the running ForEach()
  std::mutex mutex_;
  std::condition_variable begun_;
  std::condition_variable ended_;
  std::uint64_t loops_ = 0;  // loops begun so far; guarded by mutex_, as the next two
  std::size_t busy_ = 0;     // threads that have not finished the loop
  bool stop_ = false;
  const Body* body_ = nullptr;  // written while no thread is in a loop
  std::size_t rows_ = 0;
  std::atomic<std::size_t> next_{0};
  std::vector<std::thread> threads_;
};

}  // namespace gaccd
