// Connection: non-blocking exchange of frames over one socket. Not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "collectives/liveness/heartbeat/frame.h"
#include "collectives/liveness/heartbeat/socket.h"

namespace gaccd::heartbeat {

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
