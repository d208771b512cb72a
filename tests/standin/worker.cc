#include "tests/standin/worker.h"

#include <thread>
#include <utility>

#include "tests/standin/faults.h"
#include "tests/standin/settings.h"
#include "tests/standin/signal.h"

namespace gaccd::standin {

void Perform(const Work& work) {
  if (work.run == nullptr) return;
  if (work.always) {
    work.run();
    return;
  }
  MaybeDelay();
  if (DeviceFailed(work.device)) return;
  if (work.kernel && KernelFails(work.device)) return;
  for (const Allocation* allocation : work.touches) CheckLive(*allocation, work.what);
  work.run();
}

void BeginUse(const Work& work) {
  for (Allocation* allocation : work.touches) {
    allocation->user.store(work.what, std::memory_order_relaxed);
    allocation->users.fetch_add(1, std::memory_order_relaxed);
  }
}

void EndUse(const Work& work) {
  for (Allocation* allocation : work.touches) {
    allocation->users.fetch_sub(1, std::memory_order_relaxed);
  }
}

Worker::Worker() : tail_(new Node), head_(tail_) {
  std::thread([this] { Loop(); }).detach();
}

void Worker::Append(Node* node) {
  tail_->next.store(node, std::memory_order_relaxed);
  tail_ = node;
  // From this store on the thread may do it and delete *this.
  posted_.Reach(++count_);
}

void Worker::Post(Work work) {
  BeginUse(work);
  auto* node = new Node;
  node->work = std::move(work);
  Append(node);
}

void Worker::Finish() {
  auto* node = new Node;
  node->last = true;
  Append(node);
}

bool Worker::Idle() {
  if (done_.load(std::memory_order_relaxed) != count_) return false;
  (void)done_.load(std::memory_order_acquire);
  return true;
}

void Worker::Loop() {
  for (std::uint32_t done = 0;; ++done) {
    posted_.WaitFor(done + 1);
    Node* next = head_->next.load(std::memory_order_relaxed);
    delete std::exchange(head_, next);
    if (next->last) break;
    Perform(next->work);
    EndUse(next->work);
    Point* const reach = next->work.reach;
    next->work = Work{};  // frees what it holds before others see that it is done
    done_.store(done + 1, std::memory_order_release);
    if (reach != nullptr) reach->Reach();
  }
  delete head_;
  delete this;
}

}  // namespace gaccd::standin
