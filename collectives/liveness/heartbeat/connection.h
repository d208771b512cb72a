// Connection: non-blocking exchange of frames over one socket. Not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "collectives/base/files.h"
#include "collectives/base/result.h"
#include "collectives/liveness/heartbeat/frame.h"

namespace gaccd::heartbeat {

// TCP sockets for the heartbeat channel: non-blocking, close-on-exec, TCP_NODELAY.
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

class Connection {
 public:
  // sends: the direction of our own frames. Both directions start with `secret` as the key.
  Connection(Socket socket, Direction sends, const Key& secret)
      : socket_(std::move(socket)), sends_(sends), key_(secret) {}

  [[nodiscard]] const Socket& socket() const { return socket_; }
  void SetKey(const Key& key) { key_ = key; }

  // Queues a frame and writes as much as the socket accepts. Beats, goodbyes and losses get their
  // number here. If the queue is full (a peer that does not read), only beats are dropped.
  void Send(Frame frame);
  void Flush();
  [[nodiscard]] bool wants_to_write() const { return !out_.empty(); }

  // The next complete frame, or none. A wrong signature or number closes the connection, as nothing
  // after it can be trusted.
  [[nodiscard]] std::optional<Frame> Receive();

  // Closed by the peer, the system, or an invalid frame.
  [[nodiscard]] bool closed() const { return closed_; }

 private:
  [[nodiscard]] bool FillInput();

  Socket socket_;
  Direction sends_;
  Key key_;
  std::uint64_t sent_ = 0;
  std::uint64_t received_ = 0;
  std::vector<std::byte> out_;
  WireFrame in_{};
  std::size_t in_bytes_ = 0;
  bool closed_ = false;
};

}  // namespace gaccd::heartbeat
