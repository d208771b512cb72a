#include "collectives/liveness/heartbeat/socket.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "collectives/base/strings.h"

namespace gaccd::heartbeat {
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

}  // namespace

Result<Listener> Listen(int backlog) {
  Listener listener{Socket(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0))};
  if (!listener.socket.valid()) return OsError("socket");
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  socklen_t length = sizeof address;
  if (bind(listener.socket.get(), any, length) != 0) return OsError("bind");
  if (listen(listener.socket.get(), backlog) != 0) return OsError("listen");
  if (getsockname(listener.socket.get(), any, &length) != 0) return OsError("getsockname");
  listener.port = ntohs(address.sin_port);
  return listener;
}

Result<std::vector<std::string>> OwnAddresses() {
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return OsError("getifaddrs");
  std::vector<std::string> network;
  std::vector<std::string> loopback;
  for (const ifaddrs* at = first; at != nullptr; at = at->ifa_next) {
    if (at->ifa_addr == nullptr || at->ifa_addr->sa_family != AF_INET) continue;
    if ((at->ifa_flags & IFF_UP) == 0) continue;
    std::array<char, INET_ADDRSTRLEN> text{};
    const auto* address = reinterpret_cast<const sockaddr_in*>(at->ifa_addr);
    if (inet_ntop(AF_INET, &address->sin_addr, text.data(), text.size()) == nullptr) continue;
    ((at->ifa_flags & IFF_LOOPBACK) != 0 ? loopback : network).emplace_back(text.data());
  }
  freeifaddrs(first);
  network.insert(network.end(), loopback.begin(), loopback.end());
  return network;
}

Result<Socket> StartConnect(const std::string& address, std::uint16_t port) {
  Socket to(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!to.valid()) return OsError("socket");
  NoDelay(to.get());
  sockaddr_in name{};
  name.sin_family = AF_INET;
  name.sin_port = htons(port);
  if (inet_pton(AF_INET, address.c_str(), &name.sin_addr) != 1) {
    return Status(ErrorKind::kUnavailable,
                  StrCat("heartbeat: expected an IPv4 address, found '", address, "'"));
  }
  if (connect(to.get(), reinterpret_cast<const sockaddr*>(&name), sizeof name) == 0) return to;
  if (errno == EINPROGRESS) return to;
  return Status(ErrorKind::kUnavailable,
                StrCat("heartbeat: connect to ", address, ":", port, ": ", std::strerror(errno)));
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
