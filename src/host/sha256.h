// SHA-256 of bytes that come in pieces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/model_digest.h"
#include "openssl/evp.h"

namespace shoal {

class Sha256 {
 public:
  Sha256() : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) { EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr); }
  void add(const void* bytes, size_t size) { EVP_DigestUpdate(context_.get(), bytes, size); }
  // Little endian.
  void add_number(uint64_t number) {
    uint8_t bytes[8];
    for (int i = 0; i < 8; ++i) bytes[i] = static_cast<uint8_t>(number >> (8 * i));
    add(bytes, sizeof(bytes));
  }
  ModelDigest::Content result() {
    ModelDigest::Content out{};
    EVP_DigestFinal_ex(context_.get(), out.data(), nullptr);
    return out;
  }

 private:
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context_;
};

}  // namespace shoal
