// A call that may never return, to a file system that does not answer, is waited for only so long.
#pragma once

#include <chrono>
#include <functional>

namespace gaccd {

// Calls `body` on a thread of its own. Whether it has returned within `limit`; if not, the thread
// is left behind with it, so `body` shares the ownership of all that it touches. Where the system
// has no more threads `body` is called here, without a limit. Thread-safe.
[[nodiscard]] bool CallWithin(std::chrono::milliseconds limit, std::function<void()> body);

}  // namespace gaccd
