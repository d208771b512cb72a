// TCP sockets for the heartbeat channel: non-blocking, close-on-exec, TCP_NODELAY.
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
// Listens on every interface, for IPv4 and, if the system has it, IPv6. kOs with the system's
// message.
Result<Listener> Listen(int backlog);

// The addresses of this machine: IPv4 ("10.77.0.3") before IPv6 ("fd00::3") before loopback,
// without link-local ones (fe80::).
Result<std::vector<std::string>> OwnAddresses();

// Begins to connect; the socket becomes writable when the result is known. kUnavailable at once if
// there is no route to the address.
Result<Socket> StartConnect(const std::string& address, std::uint16_t port);
// REQUIRES: writable after StartConnect().
[[nodiscard]] bool Connected(const Socket& socket);

// An empty socket if no connection is pending.
[[nodiscard]] Socket Accept(const Socket& listener);

enum class Transfer : std::uint8_t { kOpen, kClosed };
// Reads up to `room` bytes; sets *done to their number. kClosed: closed by the peer or the system.
Transfer ReadSome(const Socket& socket, std::byte* to, std::size_t room, std::size_t* done);
Transfer WriteSome(const Socket& socket, const std::byte* from, std::size_t size,
                   std::size_t* done);

}  // namespace gaccd::heartbeat
