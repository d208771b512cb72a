// TCP sockets as the heartbeat channel needs them: non-blocking, closed on exec, no delay.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collectives/base/files.h"
#include "collectives/base/result.h"

namespace gaccd::heartbeat {

using Socket = FileDescriptor;

struct Listener {
  Socket socket;
  std::uint16_t port = 0;  // chosen by the system
};
// Listens on every interface, for IPv4 and, where the system has it, IPv6. kOs with the system's
// words.
Result<Listener> Listen(int backlog);

// The addresses of this machine, "10.77.0.3" before "fd00::3" before those of loopback, without
// those of one link (fe80::).
Result<std::vector<std::string>> OwnAddresses();

// Begins to connect; the socket becomes writable when it is decided. kUnavailable at once when
// there is no way to the address.
Result<Socket> StartConnect(const std::string& address, std::uint16_t port);
// REQUIRES: writable after StartConnect().
[[nodiscard]] bool Connected(const Socket& socket);

// An empty socket when nobody waits.
[[nodiscard]] Socket Accept(const Socket& listener);

enum class Transfer : std::uint8_t { kOpen, kClosed };
// Reads at most `room` bytes; *done is how many. kClosed: the other side, or the system, closed it.
Transfer ReadSome(const Socket& socket, std::byte* to, std::size_t room, std::size_t* done);
Transfer WriteSome(const Socket& socket, const std::byte* from, std::size_t size,
                   std::size_t* done);

}  // namespace gaccd::heartbeat
