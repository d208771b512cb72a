#include "collectives/liveness/heartbeat/connection.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "collectives/base/strings.h"

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

namespace {

Status OsError(const char* what) {
  return {ErrorKind::kOs, StrCat("heartbeat: ", what, ": ", std::strerror(errno))};
}

void NoDelay(int fd) {
  const int on = 1;
  // optional: only latency depends on it
  (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

bool TryAgain() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

Socket Open(int family) {
  return Socket(socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

// An IPv4 or IPv6 address with a port; ss_family 0: the text is neither.
sockaddr_storage Parse(const std::string& address, std::uint16_t port) {
  sockaddr_storage parsed{};
  auto* const v4 = reinterpret_cast<sockaddr_in*>(&parsed);
  auto* const v6 = reinterpret_cast<sockaddr_in6*>(&parsed);
  if (inet_pton(AF_INET, address.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(port);
  } else if (inet_pton(AF_INET6, address.c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(port);
  }
  return parsed;
}

socklen_t AddressLength(const sockaddr_storage& address) {
  return address.ss_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
}

// Empty for addresses that other nodes cannot connect to: other families, and link-local addresses.
std::string AddressText(const sockaddr& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const void* bytes = nullptr;
  if (address.sa_family == AF_INET) {
    bytes = &reinterpret_cast<const sockaddr_in*>(&address)->sin_addr;
  } else if (address.sa_family == AF_INET6) {
    const in6_addr& v6 = reinterpret_cast<const sockaddr_in6*>(&address)->sin6_addr;
    if (!IN6_IS_ADDR_LINKLOCAL(&v6)) bytes = &v6;
  }
  if (bytes == nullptr) return {};
  const char* const found = inet_ntop(address.sa_family, bytes, text.data(), text.size());
  return found == nullptr ? std::string() : found;
}

}  // namespace

Result<Listener> Listen(int backlog) {
  // An IPv6 socket also accepts IPv4; some systems have only IPv4.
  int family = AF_INET6;
  Listener listener{Open(family)};
  const int off = 0;
  if (!listener.socket.valid() ||
      setsockopt(listener.socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off) != 0) {
    family = AF_INET;
    listener.socket = Open(family);
  }
  if (!listener.socket.valid()) return OsError("socket");
  sockaddr_storage address = Parse(family == AF_INET6 ? "::" : "0.0.0.0", 0);
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  socklen_t length = AddressLength(address);
  if (bind(listener.socket.get(), any, length) != 0) return OsError("bind");
  if (listen(listener.socket.get(), backlog) != 0) return OsError("listen");
  if (getsockname(listener.socket.get(), any, &length) != 0) return OsError("getsockname");
  listener.port = ntohs(family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(any)->sin6_port
                                           : reinterpret_cast<sockaddr_in*>(any)->sin_port);
  return listener;
}

Result<std::vector<std::string>> OwnAddresses() {
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return OsError("getifaddrs");
  std::vector<std::string> network;
  std::vector<std::string> network_v6;
  std::vector<std::string> loopback;
  for (const ifaddrs* at = first; at != nullptr; at = at->ifa_next) {
    if (at->ifa_addr == nullptr || (at->ifa_flags & IFF_UP) == 0) continue;
    std::string text = AddressText(*at->ifa_addr);
    if (text.empty()) continue;
    auto& list = (at->ifa_flags & IFF_LOOPBACK) != 0   ? loopback
                 : at->ifa_addr->sa_family == AF_INET6 ? network_v6
                                                       : network;
    list.push_back(std::move(text));
  }
  freeifaddrs(first);
  for (const auto& more : {network_v6, loopback}) {
    network.insert(network.end(), more.begin(), more.end());
  }
  return network;
}

Result<Socket> StartConnect(const std::string& address, std::uint16_t port) {
  const sockaddr_storage name = Parse(address, port);
  if (name.ss_family == 0) {
    return Status(ErrorKind::kUnavailable,
                  StrCat("heartbeat: expected an IP address, found '", address, "'"));
  }
  Socket to = Open(name.ss_family);
  if (!to.valid()) return OsError("socket");
  NoDelay(to.get());
  if (connect(to.get(), reinterpret_cast<const sockaddr*>(&name), AddressLength(name)) == 0)
    return to;
  if (errno == EINPROGRESS) return to;
  return Status(ErrorKind::kUnavailable, StrCat("heartbeat: connect to ", address, ", port ", port,
                                                ": ", std::strerror(errno)));
}

bool Connected(const Socket& socket) {
  int error = 0;
  socklen_t length = sizeof error;
  return getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &length) == 0 && error == 0;
}

Socket Accept(const Socket& listener) {
  const int fd = accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (fd >= 0) NoDelay(fd);
  return Socket(fd);
}

Transfer ReadSome(const Socket& socket, std::byte* to, std::size_t room, std::size_t* done) {
  const ssize_t count = recv(socket.get(), to, room, 0);
  *done = count > 0 ? static_cast<std::size_t>(count) : 0;
  return count > 0 || (count < 0 && TryAgain()) ? Transfer::kOpen : Transfer::kClosed;
}

Transfer WriteSome(const Socket& socket, const std::byte* from, std::size_t size,
                   std::size_t* done) {
  const ssize_t count = send(socket.get(), from, size, MSG_NOSIGNAL);
  *done = count > 0 ? static_cast<std::size_t>(count) : 0;
  return count >= 0 || TryAgain() ? Transfer::kOpen : Transfer::kClosed;
}

}  // namespace gaccd::heartbeat
