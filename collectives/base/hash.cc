#include "collectives/base/hash.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <new>

namespace gaccd {

struct Sha256::State {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  ~State() { EVP_MD_CTX_free(context); }
};

// Can only fail without memory, or with a build of OpenSSL without SHA-256.
Sha256::Sha256() {
  // No clean-up at exit: an abandoned helper thread may still use it.
  OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, nullptr);
  state_ = std::make_unique<State>();
  if (state_->context == nullptr ||
      EVP_DigestInit_ex(state_->context, EVP_sha256(), nullptr) != 1) {
    throw std::bad_alloc();
  }
}

Sha256::~Sha256() = default;

void Sha256::Update(std::span<const std::byte> bytes) {
  EVP_DigestUpdate(state_->context, bytes.data(), bytes.size());
}

Sha256Digest Sha256::Finish() {
  Sha256Digest digest{};
  unsigned size = 0;
  EVP_DigestFinal_ex(state_->context, reinterpret_cast<unsigned char*>(digest.data()), &size);
  return digest;
}

}  // namespace gaccd
