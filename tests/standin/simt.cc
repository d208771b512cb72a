#include "tests/standin/simt.h"

#include <memory>
#include <string>
#include <vector>

#include "collectives/base/strings.h"
#include "tests/standin/fatal.h"
#include "tests/standin/fiber.h"
#include "tests/standin/settings.h"

namespace gaccd::simt {
namespace {

using standin::Fatal;
using standin::Fiber;

constexpr unsigned kMaxThreads = 1024;
constexpr unsigned kWarp = 32;

enum class State { kNotStarted, kReady, kAtWarp, kAtBlock, kDone };

struct Thread {
  State state = State::kNotStarted;
  Fiber* fiber = nullptr;  // the one it waits on
  Where where;
};

struct Warp {
  unsigned arrived = 0;
  unsigned met = 0;  // how often all have met; its parity says which values are being brought
  WarpOp op = WarpOp::kShuffle;
  Where where;
  // A lane can bring its next value only after all have brought this one, so two rows suffice.
  std::uint64_t values[2][kWarp];
};

std::string At(Where where) { return StrCat(where.file, ":", where.line); }

const char* OpName(WarpOp op) {
  switch (op) {
    case WarpOp::kShuffle:
      return "a shuffle";
    case WarpOp::kVote:
      return "a vote";
  }
  return "?";
}

// Runs the threads of one block. A fiber takes threads that have not started until one of them
// waits, so a kernel without barriers runs on one fiber without a switch.
class BlockRunner {
 public:
  void Run(const std::function<void()>& kernel, unsigned threads, const char* what, bool backwards);
  void MeetBlock(Where where);
  const std::uint64_t* MeetWarp(WarpOp op, unsigned mask, std::uint64_t value, Where where);
  void Fence();
  void CountBlock(bool is_last, Where where);
  [[noreturn]] void Stop(const std::string& why, Where where);
  [[nodiscard]] GACCD_UNCHECKED bool running() const { return kernel_ != nullptr; }

 private:
  static void FiberMain(void* runner);
  void StartThreads();
  void Wait(State state, Where where);
  // The others of [first, first + count) have met this thread.
  void Wake(unsigned first, unsigned count);
  // What runs next: a fiber for threads that have not started, one that is ready, or main_.
  Fiber& Next();
  void AddFiber();
  [[noreturn]] void ReportStuck();
  [[noreturn]] void StopAtBlock(Where where);
  [[noreturn]] void StopAtMask(WarpOp op, unsigned mask, Where where);
  [[noreturn]] void StopAtWarp(WarpOp op, Where where);

  Fiber main_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  Fiber* running_ = nullptr;
  // Not std::array nor std::vector, whose functions are checked.
  Fiber* idle_[kMaxThreads];
  unsigned idle_count_ = 0;
  Thread thread_[kMaxThreads];
  unsigned ready_[kMaxThreads] = {};  // threads, a ring: the first of ready_count_
  unsigned first_ready_ = 0;
  unsigned ready_count_ = 0;
  Warp warps_[kMaxThreads / kWarp];
  const std::function<void()>* kernel_ = nullptr;
  const char* what_ = "";
  unsigned threads_ = 0;
  unsigned started_ = 0;
  unsigned done_ = 0;
  unsigned at_block_ = 0;
  Where block_where_;              // of the first that arrived
  unsigned fenced_ = kMaxThreads;  // the thread that fenced last, if it met nobody since
  unsigned fences_missing_ = 0;    // of threads of the last block
  Where count_where_;
  bool backwards_ = false;
};

GACCD_UNCHECKED BlockRunner& Runner() {
  static thread_local BlockRunner runner;
  return runner;
}

GACCD_UNCHECKED void BlockRunner::FiberMain(void* runner) {
  auto* self = static_cast<BlockRunner*>(runner);
  for (;;) {
    self->StartThreads();
    Fiber* me = self->running_;
    self->idle_[self->idle_count_++] = me;
    Fiber::Switch(*me, self->Next());
  }
}

GACCD_UNCHECKED void BlockRunner::StartThreads() {
  while (started_ < threads_) {
    threadIdx.x = backwards_ ? threads_ - 1 - started_ : started_;
    ++started_;
    (*kernel_)();
    thread_[threadIdx.x].state = State::kDone;
    ++done_;
  }
}

GACCD_UNCHECKED void BlockRunner::Wait(State state, Where where) {
  Fiber* const me = running_;
  thread_[threadIdx.x] = {.state = state, .fiber = me, .where = where};
  fenced_ = kMaxThreads;
  Fiber::Switch(*me, Next());
}

GACCD_UNCHECKED void BlockRunner::Wake(unsigned first, unsigned count) {
  for (unsigned n = 0; n < count; ++n) {
    const unsigned t = first + (backwards_ ? count - 1 - n : n);
    if (t == threadIdx.x) continue;
    thread_[t].state = State::kReady;
    ready_[(first_ready_ + ready_count_++) % kMaxThreads] = t;
  }
}

GACCD_UNCHECKED Fiber& BlockRunner::Next() {
  if (started_ < threads_) {
    if (idle_count_ == 0) AddFiber();
    running_ = idle_[--idle_count_];
    return *running_;
  }
  if (ready_count_ == 0) return main_;
  const unsigned thread = ready_[first_ready_];
  first_ready_ = (first_ready_ + 1) % kMaxThreads;
  --ready_count_;
  threadIdx.x = thread;
  running_ = thread_[thread].fiber;
  return *running_;
}

void BlockRunner::AddFiber() {
  fibers_.push_back(std::make_unique<Fiber>(&FiberMain, this));
  idle_[idle_count_++] = fibers_.back().get();
}

void BlockRunner::Run(const std::function<void()>& kernel, unsigned threads, const char* what,
                      bool backwards) {
  kernel_ = &kernel;
  what_ = what;
  threads_ = threads;
  backwards_ = backwards;
  started_ = done_ = at_block_ = 0;
  fenced_ = kMaxThreads;
  fences_missing_ = 0;
  for (unsigned t = 0; t < threads; ++t) thread_[t].state = State::kNotStarted;
  for (unsigned w = 0; w < threads / kWarp; ++w) warps_[w].arrived = 0;
  Fiber::Switch(main_, Next());
  if (done_ < threads_) ReportStuck();
  if (fences_missing_ > 0) {
    Stop(StrCat("the last block was counted, and ", fences_missing_,
                " of its threads did not call __threadfence() afterwards"),
         count_where_);
  }
  kernel_ = nullptr;
}

GACCD_UNCHECKED void BlockRunner::MeetBlock(Where where) {
  if (at_block_ == 0) {
    block_where_ = where;
  } else if (block_where_.line != where.line) {
    StopAtBlock(where);
  }
  if (++at_block_ < threads_) {
    Wait(State::kAtBlock, where);
    return;
  }
  at_block_ = 0;
  Wake(0, threads_);
}

void BlockRunner::StopAtBlock(Where where) {
  Stop(StrCat("it is at this __syncthreads(), but another thread at that of ", At(block_where_)),
       where);
}

GACCD_UNCHECKED const std::uint64_t* BlockRunner::MeetWarp(WarpOp op, unsigned mask,
                                                           std::uint64_t value, Where where) {
  if (mask != 0xffffffffU) StopAtMask(op, mask, where);
  const unsigned first = threadIdx.x / kWarp * kWarp;
  Warp& warp = warps_[threadIdx.x / kWarp];
  if (warp.arrived == 0) {
    warp.op = op;
    warp.where = where;
  } else if (warp.op != op || warp.where.line != where.line) {
    StopAtWarp(op, where);
  }
  std::uint64_t* const values = warp.values[warp.met % 2];
  values[threadIdx.x % kWarp] = value;
  if (++warp.arrived < kWarp) {
    Wait(State::kAtWarp, where);
    return values;
  }
  warp.arrived = 0;
  ++warp.met;
  Wake(first, kWarp);
  return values;
}

void BlockRunner::StopAtMask(WarpOp op, unsigned mask, Where where) {
  Stop(StrCat(OpName(op), " with mask ", mask, " instead of all"), where);
}

void BlockRunner::StopAtWarp(WarpOp op, Where where) {
  const Warp& warp = warps_[threadIdx.x / kWarp];
  Stop(StrCat("lane ", threadIdx.x % kWarp, " is at ", OpName(op), " of line ", where.line,
              ", but another lane of its warp at ", OpName(warp.op), " of ", At(warp.where)),
       where);
}

void BlockRunner::Fence() {
  fenced_ = threadIdx.x;
  if (fences_missing_ > 0) --fences_missing_;
}

void BlockRunner::CountBlock(bool is_last, Where where) {
  if (fenced_ != threadIdx.x) Stop("an atomic operation without __threadfence() before it", where);
  fences_missing_ = is_last ? threads_ : 0;
  count_where_ = where;
}

void BlockRunner::ReportStuck() {
  std::string report = "not all threads reached a barrier:";
  for (const auto& [state, words] :
       {std::pair{State::kAtBlock, "wait at __syncthreads()"},
        std::pair{State::kAtWarp, "wait at a warp operation"}, std::pair{State::kDone, "ended"}}) {
    unsigned count = 0;
    unsigned example = 0;
    for (unsigned t = 0; t < threads_; ++t) {
      if (thread_[t].state != state) continue;
      if (count++ == 0) example = t;
    }
    if (count == 0) continue;
    report += StrCat(" ", count, " ", words, " (thread ", example);
    report += state == State::kDone ? ");" : StrCat(" at ", At(thread_[example].where), ");");
  }
  Fatal(StrCat("kernel '", what_, "', block ", blockIdx.x, ": ", report));
}

void BlockRunner::Stop(const std::string& why, Where where) {
  Fatal(StrCat("kernel '", what_, "', block ", blockIdx.x, ", thread ", threadIdx.x, ", ",
               At(where), ": ", why));
}

[[noreturn]] void StopOutside(Where where) {
  Fatal(StrCat(At(where), ": a barrier outside a kernel"));
}

GACCD_UNCHECKED BlockRunner& Running(Where where) {
  BlockRunner& runner = Runner();
  if (!runner.running()) StopOutside(where);
  return runner;
}

}  // namespace

void Run(const std::function<void()>& kernel, unsigned blocks, unsigned threads, const char* what) {
  if (blocks == 0 || threads == 0 || threads > kMaxThreads || threads % kWarp != 0) {
    Fatal(StrCat("kernel '", what, "': ", blocks, " blocks of ", threads,
                 " threads; wanted are 1 or more of a multiple of 32, at most 1024"));
  }
  const bool backwards = standin::RunBackwards();
  blockDim.x = threads;
  gridDim.x = blocks;
  for (unsigned b = 0; b < blocks; ++b) {
    blockIdx.x = backwards ? blocks - 1 - b : b;
    Runner().Run(kernel, threads, what, backwards);
  }
}

GACCD_UNCHECKED void MeetBlock(Where where) { Running(where).MeetBlock(where); }

GACCD_UNCHECKED const std::uint64_t* MeetWarp(WarpOp op, unsigned mask, std::uint64_t value,
                                              Where where) {
  return Running(where).MeetWarp(op, mask, value, where);
}

void Fence(Where where) { Running(where).Fence(); }

void CountBlock(bool is_last, Where where) { Running(where).CountBlock(is_last, where); }

void Refuse(const char* what, Where where) { Running(where).Stop(what, where); }

}  // namespace gaccd::simt
