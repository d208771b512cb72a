// What SetDelays() asked for, as the workers read it. Relaxed atomics throughout: bookkeeping must
// not order the streams, or ThreadSanitizer would miss the races of the code under test.
#pragma once

#include <cstdint>

namespace gaccd::standin {

void SetDelaySettings(std::uint64_t seed, int max_microseconds);
// Waits as long as this piece of work shall be late.
void MaybeDelay();
// What SetMaxPending() asked for.
int MaxPending();
// What SetEventsWait() asked for.
bool EventsWait();
// What an event is stamped with: the time of the machine, or of the virtual clock.
std::int64_t DeviceNanoseconds();
// Whether the kernel that starts now on this thread runs its blocks and threads in reverse.
bool RunBackwards();

}  // namespace gaccd::standin
