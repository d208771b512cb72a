#include "collectives/liveness/heartbeat/connection.h"

namespace gaccd::heartbeat {
namespace {

constexpr std::size_t kMaxWaitingBytes = 64 * kFrameBytes;

bool IsHandshake(FrameType type) {
  return type == FrameType::kHello || type == FrameType::kWelcome;
}

}  // namespace

void Connection::Send(Frame frame) {
  if (closed_) return;
  if (frame.type == FrameType::kBeat && out_.size() >= kMaxWaitingBytes) return;
  if (!IsHandshake(frame.type)) frame.number = ++sent_;
  const WireFrame wire = Encode(frame, sends_, key_);
  out_.insert(out_.end(), wire.begin(), wire.end());
  Flush();
}

void Connection::Flush() {
  while (!out_.empty() && !closed_) {
    std::size_t done = 0;
    if (WriteSome(socket_, out_.data(), out_.size(), &done) == Transfer::kClosed) closed_ = true;
    if (done == 0) return;
    out_.erase(out_.begin(), out_.begin() + static_cast<std::ptrdiff_t>(done));
  }
}

bool Connection::FillInput() {
  while (in_bytes_ < kFrameBytes) {
    std::size_t done = 0;
    const Transfer state =
        ReadSome(socket_, in_.data() + in_bytes_, kFrameBytes - in_bytes_, &done);
    if (state == Transfer::kClosed) closed_ = true;
    if (done == 0) return false;
    in_bytes_ += done;
  }
  return true;
}

std::optional<Frame> Connection::Receive() {
  if (closed_ || !FillInput()) return std::nullopt;
  in_bytes_ = 0;
  const Direction theirs = sends_ == Direction::kToHub ? Direction::kFromHub : Direction::kToHub;
  Result<Frame> frame = Decode(in_, theirs, key_);
  if (frame.ok() && (IsHandshake(frame->type) || frame->number == received_ + 1)) {
    if (!IsHandshake(frame->type)) ++received_;
    return *frame;
  }
  closed_ = true;
  return std::nullopt;
}

}  // namespace gaccd::heartbeat
