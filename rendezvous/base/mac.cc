#include "rendezvous/base/mac.h"

extern "C" {  // Some of these headers lack it.
#include <mbedtls/constant_time.h>
#include <mbedtls/md.h>
}

#include "rendezvous/base/error.h"

namespace muster {
namespace {

// The calls fail only without memory.
class Hmac {
 public:
  explicit Hmac(std::string_view key) {
    mbedtls_md_init(&context_);
    CHECK(mbedtls_md_setup(&context_, mbedtls_md_info_from_type(MBEDTLS_MD_SHA256), 1) == 0);
    CHECK(mbedtls_md_hmac_starts(&context_, bytes(key), key.size()) == 0);
  }
  Hmac(Hmac&&) = delete;
  ~Hmac() { mbedtls_md_free(&context_); }

  void add(std::string_view part) {
    CHECK(mbedtls_md_hmac_update(&context_, bytes(part), part.size()) == 0);
  }
  Mac finish() {
    Mac mac{};
    CHECK(mbedtls_md_hmac_finish(&context_, mac.data()) == 0);
    return mac;
  }

 private:
  static const unsigned char* bytes(std::string_view text) {
    static constexpr unsigned char kNothing = 0;
    return text.empty() ? &kNothing : reinterpret_cast<const unsigned char*>(text.data());
  }

  mbedtls_md_context_t context_;
};

}  // namespace

Mac mac_of(std::string_view key, std::initializer_list<std::string_view> parts) {
  Hmac hmac(key);
  for (const std::string_view part : parts) {
    std::array<char, 8> size{};
    for (size_t i = 0; i < size.size(); ++i)
      size[i] = static_cast<char>(uint64_t{part.size()} >> (8 * i) & 0xff);
    hmac.add({size.data(), size.size()});
    hmac.add(part);
  }
  return hmac.finish();
}

bool same_mac(const Mac& a, const Mac& b) {
  return mbedtls_ct_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace muster
