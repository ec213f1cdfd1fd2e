// An authority and certificates of it, for tests.
#pragma once

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <memory>
#include <string>

#include "transport/bulk_tcp.h"

namespace shoal {

class TestAuthority {
 public:
  TestAuthority() : key_(EVP_EC_gen("P-256"), EVP_PKEY_free), certificate_(make("test authority", key_.get(), nullptr, 3600), X509_free) {}

  // `seconds`: how long it is valid from now; negative: it has expired.
  TlsIdentity issue(const std::string& name, long seconds = 3600) const {
    const Key key(EVP_EC_gen("P-256"), EVP_PKEY_free);
    const Certificate certificate(make(name, key.get(), this, seconds), X509_free);
    return {pem(certificate.get()), pem(key.get()), pem(certificate_.get())};
  }

 private:
  using Key = std::unique_ptr<EVP_PKEY, void (*)(EVP_PKEY*)>;
  using Certificate = std::unique_ptr<X509, void (*)(X509*)>;

  static void extend(X509* certificate, int kind, const char* value) {
    X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, nullptr, kind, value);
    X509_add_ext(certificate, extension, -1);
    X509_EXTENSION_free(extension);
  }
  // Signed by `authority`, or by itself.
  static X509* make(const std::string& name, EVP_PKEY* key, const TestAuthority* authority, long seconds) {
    static long serial = 0;
    X509* certificate = X509_new();
    X509_set_version(certificate, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(certificate), ++serial);
    X509_gmtime_adj(X509_getm_notBefore(certificate), -7200);
    X509_gmtime_adj(X509_getm_notAfter(certificate), seconds);
    X509_set_pubkey(certificate, key);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate), "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
    X509_set_issuer_name(certificate, authority != nullptr ? X509_get_subject_name(authority->certificate_.get()) : X509_get_subject_name(certificate));
    extend(certificate, NID_basic_constraints, authority != nullptr ? "critical,CA:FALSE" : "critical,CA:TRUE");
    if (authority != nullptr) extend(certificate, NID_subject_alt_name, "DNS:localhost,IP:127.0.0.1");
    X509_sign(certificate, authority != nullptr ? authority->key_.get() : key, EVP_sha256());
    return certificate;
  }
  static std::string text_of(BIO* bio) {
    char* data = nullptr;
    const long size = BIO_get_mem_data(bio, &data);
    std::string text(data, static_cast<size_t>(size));
    BIO_free(bio);
    return text;
  }
  static std::string pem(X509* certificate) {
    BIO* bio = BIO_new(BIO_s_mem());
    PEM_write_bio_X509(bio, certificate);
    return text_of(bio);
  }
  static std::string pem(EVP_PKEY* key) {
    BIO* bio = BIO_new(BIO_s_mem());
    PEM_write_bio_PrivateKey(bio, key, nullptr, nullptr, 0, nullptr, nullptr);
    return text_of(bio);
  }

  Key key_;
  Certificate certificate_;
};

}  // namespace shoal
