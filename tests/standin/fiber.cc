#include "tests/standin/fiber.h"

#include <sys/mman.h>
#include <unistd.h>

#include <mutex>
#include <vector>

#include "tests/sanitized.h"
#include "tests/standin/fatal.h"

#if !defined(__x86_64__)
#include <ucontext.h>
#endif
#if defined(GACCD_SANITIZED)
#include <sanitizer/asan_interface.h>
#endif

namespace gaccd::standin {
namespace {

// Sanitizers and -O0 make frames several times larger.
#if defined(GACCD_SANITIZED) || !defined(__OPTIMIZE__)
constexpr std::size_t kStackBytes = std::size_t{256} << 10;
#else
constexpr std::size_t kStackBytes = std::size_t{64} << 10;
#endif
constexpr std::size_t kGuardBytes = 4096;

// Stacks outlive their fibers, as every thread of a stream makes some hundred: what takes the time
// is the system's work for new pages.
class Stacks {
 public:
  std::byte* Take() {
    {
      const std::lock_guard lock(mutex_);
      if (!free_.empty()) {
        std::byte* mapping = free_.back();
        free_.pop_back();
        return mapping;
      }
    }
    void* mapping = mmap(nullptr, kGuardBytes + kStackBytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapping == MAP_FAILED || mprotect(mapping, kGuardBytes, PROT_NONE) != 0) {
      Fatal("no memory for the stack of a fiber");
    }
    return static_cast<std::byte*>(mapping);
  }
  void Give(std::byte* mapping) {
#if defined(GACCD_SANITIZED)
    // The frames of the fiber have not returned.
    ASAN_UNPOISON_MEMORY_REGION(mapping + kGuardBytes, kStackBytes);
#endif
    const std::lock_guard lock(mutex_);
    free_.push_back(mapping);
  }

 private:
  std::mutex mutex_;
  std::vector<std::byte*> free_;
};

Stacks& AllStacks() {
  static auto* stacks = new Stacks;  // threads end after static objects
  return *stacks;
}

// The fiber that a new fiber's first instructions belong to.
constinit thread_local Fiber* starting = nullptr;

}  // namespace

#if defined(__x86_64__)
// void gaccd_standin_switch(void** save, void* load): pushes what a called function must keep, puts
// the stack pointer into *save, continues at `load`, where the same was pushed before.
asm(R"(
.text
.type gaccd_standin_switch, @function
gaccd_standin_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size gaccd_standin_switch, .-gaccd_standin_switch
)");
extern "C" void gaccd_standin_switch(void** save, void* load);

namespace {
void* FirstFrame(std::byte* stack, std::size_t bytes, void (*start)()) {
  auto** top = reinterpret_cast<void**>(stack + bytes);
  *--top = nullptr;  // as if called: the alignment, and a return address that ends backtraces
  *--top = reinterpret_cast<void*>(start);
  for (int saved = 0; saved < 6; ++saved) *--top = nullptr;
  return top;
}
GACCD_UNCHECKED void Jump(void** save, void* load) { gaccd_standin_switch(save, load); }
}  // namespace
#else
namespace {
void* FirstFrame(std::byte* stack, std::size_t bytes, void (*start)()) {
  auto* context = new ucontext_t;  // lives as long as the thread's pool: to the end
  if (getcontext(context) != 0) Fatal("getcontext failed");
  context->uc_stack.ss_sp = stack;
  context->uc_stack.ss_size = bytes;
  context->uc_link = nullptr;
  makecontext(context, start, 0);
  return context;
}
void Jump(void** save, void* load) {
  if (*save == nullptr) *save = new ucontext_t;
  if (swapcontext(static_cast<ucontext_t*>(*save), static_cast<ucontext_t*>(load)) != 0) {
    Fatal("swapcontext failed");
  }
}
}  // namespace
#endif

Fiber::Fiber(Entry entry, void* argument)
    : mapping_(AllStacks().Take()), entry_(entry), argument_(argument) {
  stack_pointer_ = FirstFrame(mapping_ + kGuardBytes, kStackBytes, &Fiber::Start);
}

Fiber::~Fiber() {
  if (mapping_ != nullptr) AllStacks().Give(mapping_);
}

GACCD_UNCHECKED void Fiber::Start() {
  Fiber* self = starting;
  self->entry_(self->argument_);
  Fatal("a fiber returned");
}

GACCD_UNCHECKED void Fiber::Switch(Fiber& from, Fiber& to) {
  starting = &to;
  Jump(&from.stack_pointer_, to.stack_pointer_);
}

}  // namespace gaccd::standin
