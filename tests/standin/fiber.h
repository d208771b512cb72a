// Fiber: a stack of its own, on which a function runs until it switches elsewhere. A switch costs a
// few nanoseconds. A fiber belongs to the thread that made it.
#pragma once

#include <cstddef>

namespace gaccd::standin {

class Fiber {
 public:
  using Entry = void (*)(void* argument);  // never returns

  Fiber() = default;                   // the calling thread itself
  Fiber(Entry entry, void* argument);  // starts at its first SwitchTo()
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Leaves `from`, which must be running; returns when somebody switches back to it.
  static void Switch(Fiber& from, Fiber& to);

 private:
  static void Start();

  void* stack_pointer_ = nullptr;
  std::byte* mapping_ = nullptr;  // guard page, then the stack
  Entry entry_ = nullptr;
  void* argument_ = nullptr;
};

}  // namespace gaccd::standin
