#include "daemon/data/images/row_threads.h"

#include <utility>

#include "collectives/base/thread.h"

namespace gaccd {

Result<std::unique_ptr<RowThreads>> RowThreads::Start(std::int64_t threads) {
  std::unique_ptr<RowThreads> rows(new RowThreads);
  for (std::int64_t i = 1; i < threads; ++i) {
    GACCD_ASSIGN_OR_RETURN(auto thread, StartThread("a thread that decodes images",
                                                    [self = rows.get()] { self->Run(); }));
    rows->threads_.push_back(std::move(thread));
  }
  return rows;
}

RowThreads::~RowThreads() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  begun_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void RowThreads::ProcessRows() {
  for (std::size_t row = next_.fetch_add(1); row < rows_; row = next_.fetch_add(1)) (*body_)(row);
}

void RowThreads::Run() {
  std::uint64_t seen = 0;
  std::unique_lock lock(mutex_);
  while (true) {
    begun_.wait(lock, [&] { return stop_ || loops_ != seen; });
    if (stop_) return;
    seen = loops_;
    lock.unlock();
    ProcessRows();
    lock.lock();
    if (--busy_ == 0) ended_.notify_one();
  }
}

void RowThreads::ForEach(std::size_t rows, const Body& body) {
  if (threads_.empty() || rows < 2) {
    for (std::size_t row = 0; row < rows; ++row) body(row);
    return;
  }
  const std::lock_guard own(loop_);
  {
    const std::lock_guard lock(mutex_);
    body_ = &body;
    rows_ = rows;
    next_ = 0;
    busy_ = threads_.size();
    ++loops_;
  }
  begun_.notify_all();
  ProcessRows();
  std::unique_lock lock(mutex_);
  ended_.wait(lock, [this] { return busy_ == 0; });
}

}  // namespace gaccd
