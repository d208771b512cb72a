// SHA-256 of a stream of bytes, by OpenSSL; Hex() of it equals the output of sha256sum(1).
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>

namespace gaccd {

using Sha256Digest = std::array<std::byte, 32>;

class Sha256 {
 public:
  Sha256();  // throws std::bad_alloc if OpenSSL has no memory
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  void Update(std::span<const std::byte> bytes);
  // Ends the stream; the object must not be used afterwards.
  [[nodiscard]] Sha256Digest Finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace gaccd
