// Connection: frames over one socket, in both directions, without ever blocking. Not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "collectives/liveness/heartbeat/frame.h"
#include "collectives/liveness/heartbeat/socket.h"

namespace gaccd::heartbeat {

class Connection {
 public:
  // `sends` is the direction of our own frames. Both start with the secret as the key.
  Connection(Socket socket, Direction sends, const Key& secret)
      : socket_(std::move(socket)), sends_(sends), key_(secret) {}

  [[nodiscard]] const Socket& socket() const { return socket_; }
  void SetKey(const Key& key) { key_ = key; }

  // Queues a frame and writes what the socket takes. Beats, goodbyes and losses get their number
  // here. A full queue (a peer that does not read) drops beats, nothing else.
  void Send(Frame frame);
  void Flush();
  [[nodiscard]] bool wants_to_write() const { return !out_.empty(); }

  // The next frame that has arrived whole, or none. A wrong signature or number closes the
  // connection: nothing after it can be trusted.
  [[nodiscard]] std::optional<Frame> Receive();

  // Closed by the other side, the system, or a wrong frame.
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
