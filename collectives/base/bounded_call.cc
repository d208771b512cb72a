#include "collectives/base/bounded_call.h"

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "collectives/base/thread.h"

namespace gaccd {
namespace {

struct Call {
  std::function<void()> body;
  std::mutex mutex;
  std::condition_variable changed;
  bool returned = false;
};

}  // namespace

bool CallWithin(std::chrono::milliseconds limit, std::function<void()> body) {
  const auto call = std::make_shared<Call>();
  call->body = std::move(body);
  auto thread = StartThread("a bounded call", [call] {
    call->body();
    call->body = nullptr;  // what it owns may need the time of a destructor
    const std::lock_guard lock(call->mutex);
    call->returned = true;
    call->changed.notify_all();
  });
  if (!thread.ok()) {
    call->body();
    return true;
  }
  bool returned = false;
  {
    std::unique_lock lock(call->mutex);
    returned = call->changed.wait_for(lock, limit, [&] { return call->returned; });
  }
  returned ? thread->join() : thread->detach();
  return returned;
}

}  // namespace gaccd
