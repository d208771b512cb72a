#include "collectives/base/bounded_call.h"

#include <memory>
#include <utility>

#include "collectives/base/thread.h"

namespace gaccd {

Result<AbandonableThread> AbandonableThread::Start(std::string_view name,
                                                   std::function<void()> body) {
  const auto ended = std::make_shared<std::promise<void>>();
  AbandonableThread started;
  started.ended_ = ended->get_future();
  GACCD_ASSIGN_OR_RETURN(started.thread_,
                         StartThread(name, [ended, body = std::move(body)]() mutable {
                           body();
                           body = nullptr;  // what it owns may need the time of a destructor
                           ended->set_value();
                         }));
  return started;
}

bool AbandonableThread::Join(std::chrono::milliseconds limit) {
  if (!thread_.joinable()) return true;
  const bool ended = ended_.wait_for(limit) == std::future_status::ready;
  ended ? thread_.join() : thread_.detach();
  return ended;
}

bool CallWithin(std::chrono::milliseconds limit, std::function<void()> body) {
  const auto shared = std::make_shared<std::function<void()>>(std::move(body));
  auto thread = AbandonableThread::Start("a bounded call", [shared] {
    (*shared)();
    *shared = nullptr;
  });
  if (thread.ok()) return thread->Join(limit);
  (*shared)();
  return true;
}

}  // namespace gaccd
