// SHA-256 of a stream of bytes, by OpenSSL: in hexadecimal digits what sha256sum(1) prints.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>

namespace gaccd {

using Sha256Digest = std::array<std::byte, 32>;

class Sha256 {
 public:
  Sha256();  // throws std::bad_alloc when OpenSSL has no memory
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  void Update(std::span<const std::byte> bytes);
  // Ends the stream; nothing may be called after it.
  [[nodiscard]] Sha256Digest Finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace gaccd
