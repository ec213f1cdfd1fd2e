#include "gateway/api_keys.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "base/clock.h"
#include "base/request.h"
#include "openssl/crypto.h"
#include "openssl/sha.h"

namespace shoal {
namespace {

constexpr std::string_view kHashed = "sha256:";
constexpr size_t kNameBytesMax = 64;

bool is_name(std::string_view text) {
  return !text.empty() && text.size() <= kNameBytesMax && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return c > ' ' && c < 0x7f && c != '"' && c != '\\';
  });
}

StatusOr<KeyDigest> parse_secret(std::string_view word) {
  if (!word.starts_with(kHashed)) return key_digest(word);
  const std::string hex(word.substr(kHashed.size()));
  const bool all_hex = std::all_of(hex.begin(), hex.end(), [](unsigned char c) { return std::isxdigit(c) != 0; });
  if (hex.size() != 2 * sizeof(KeyDigest) || !all_hex) return invalid_argument("sha256: must be followed by 64 hexadecimal digits");
  const std::string bytes = absl::HexStringToBytes(hex);
  KeyDigest digest;
  std::copy(bytes.begin(), bytes.end(), digest.begin());
  return digest;
}

template <typename Int>
Status parse_limit(const std::string& name, const std::string& value, Int& out) {
  if (absl::SimpleAtoi(value, &out)) return OkStatus();
  return invalid_argument(name, "=", value, ": must be a whole number (0: no limit)");
}

Status parse_attribute(const std::string& word, ApiKey& key) {
  const size_t equals = word.find('=');
  if (equals == std::string::npos) {
    return invalid_argument("a key has no blanks, and after it come name=, rpm=, tpm=, concurrency=, weight= or models=");
  }
  const std::string name = word.substr(0, equals), value = word.substr(equals + 1);
  if (name == "rpm") return parse_limit(name, value, key.limits.requests_per_minute);
  if (name == "tpm") return parse_limit(name, value, key.limits.tokens_per_minute);
  if (name == "concurrency") return parse_limit(name, value, key.limits.concurrency);
  if (name == "weight") {
    if (absl::SimpleAtoi(value, &key.weight) && key.weight >= 1 && key.weight <= Payer::kWeightMax) return OkStatus();
    return invalid_argument("weight=", value, ": must be a whole number from 1 to ", Payer::kWeightMax, ", the key's share beside those of the other keys");
  }
  if (name == "models") {
    key.limits.models = absl::StrSplit(value, ',', absl::SkipEmpty());
    return OkStatus();
  }
  if (name != "name") return invalid_argument(name, "=: unknown; there are name, rpm, tpm, concurrency, weight and models");
  if (!is_name(value)) return invalid_argument("name=", value, ": must be 1 to ", kNameBytesMax, " printable characters without blanks");
  key.name = value;
  return OkStatus();
}

ApiError rate_limited(std::string message, Duration wait) {
  return {.http_status = 429, .type = "rate_limit_error", .message = std::move(message), .code = "rate_limit_exceeded",
          .retry_after_s = retry_seconds(wait)};
}

void add_headers(MinuteBudget& budget, const std::string& what, TimePoint now, Headers& out) {
  out.emplace_back("x-ratelimit-limit-" + what, absl::StrFormat("%.0f", budget.per_minute()));
  out.emplace_back("x-ratelimit-remaining-" + what, absl::StrFormat("%.0f", std::floor(budget.left(now))));
  out.emplace_back("x-ratelimit-reset-" + what, absl::StrFormat("%.3fs", to_seconds(budget.until_full(now))));
}

}  // namespace

KeyDigest key_digest(std::string_view secret) {
  KeyDigest digest;
  SHA256(reinterpret_cast<const unsigned char*>(secret.data()), secret.size(), digest.data());
  return digest;
}

StatusOr<ApiKey> parse_api_key(std::string_view line, const KeyLimits& defaults) {
  const std::vector<std::string> words =
      absl::StrSplit(absl::string_view(line.data(), line.size()), absl::ByAnyChar(" \t\r"), absl::SkipEmpty());
  if (words.empty()) return invalid_argument("the key is empty");
  ApiKey key{.limits = defaults};
  ASSIGN_OR_RETURN(key.digest, parse_secret(words[0]));
  for (size_t i = 1; i < words.size(); ++i) RETURN_IF_ERROR(parse_attribute(words[i], key));
  // A key without a name is known by the beginning of its digest, which gives nothing away.
  if (key.name.empty()) key.name = "key-" + absl::BytesToHexString(std::string(key.digest.begin(), key.digest.begin() + 4));
  return key;
}

void MinuteBudget::refill(TimePoint now) {
  level_ = std::min(per_minute_, level_ + per_minute_ * to_seconds(now - at_) / 60.0);
  at_ = now;
}

Duration MinuteBudget::wait_for(double amount, TimePoint now) {
  refill(now);
  const double missing = std::min(amount, per_minute_) - level_;
  return missing <= 0 ? Duration(0) : from_seconds(missing * 60.0 / per_minute_);
}

void MinuteBudget::spend(double amount, TimePoint now) {
  refill(now);
  level_ -= amount;
}

double MinuteBudget::left(TimePoint now) {
  refill(now);
  return std::max(0.0, level_);
}

Duration MinuteBudget::until_full(TimePoint now) {
  refill(now);
  return from_seconds((per_minute_ - level_) * 60.0 / per_minute_);
}

KeyRing::KeyRing(std::vector<ApiKey> keys) : keys_(std::move(keys)) {
  const TimePoint now = steady_now();
  for (const ApiKey& key : keys_) {
    auto account = std::make_unique<Account>();
    if (key.limits.requests_per_minute > 0) account->requests.emplace(key.limits.requests_per_minute, now);
    if (key.limits.tokens_per_minute > 0) account->tokens.emplace(static_cast<double>(key.limits.tokens_per_minute), now);
    accounts_.push_back(std::move(account));
  }
}

std::optional<size_t> KeyRing::find(std::string_view secret) const {
  const KeyDigest digest = key_digest(secret);
  std::optional<size_t> found;
  for (size_t i = 0; i < keys_.size(); ++i) {
    if (CRYPTO_memcmp(keys_[i].digest.data(), digest.data(), digest.size()) == 0) found = i;
  }
  return found;
}

bool KeyRing::allows(size_t index, const std::string& name, const std::vector<std::string>& aliases) const {
  const auto& models = keys_[index].limits.models;
  const auto listed = [&](const std::string& n) { return std::find(models.begin(), models.end(), n) != models.end(); };
  return models.empty() || listed(name) || std::any_of(aliases.begin(), aliases.end(), listed);
}

ApiResult<KeyRing::Lease> KeyRing::admit(size_t index, uint64_t prompt_tokens, TimePoint now) {
  const ApiKey& key = keys_[index];
  Account& account = *accounts_[index];
  std::lock_guard lock(account.mutex);
  if (key.limits.concurrency > 0 && account.under_way >= key.limits.concurrency) {
    return rate_limited(absl::StrCat("This API key may have ", key.limits.concurrency, " requests under way at once."),
                        std::chrono::seconds(1));
  }
  const double tokens = static_cast<double>(prompt_tokens);
  const Duration request_wait = account.requests ? account.requests->wait_for(1, now) : Duration(0);
  const Duration token_wait = account.tokens ? account.tokens->wait_for(tokens, now) : Duration(0);
  if (request_wait > Duration(0)) {
    return rate_limited(absl::StrCat("This API key is over its limit of ", key.limits.requests_per_minute, " requests per minute."),
                        request_wait);
  }
  if (token_wait > Duration(0)) {
    return rate_limited(absl::StrCat("This API key is over its limit of ", key.limits.tokens_per_minute, " tokens per minute."),
                        token_wait);
  }
  if (account.requests) account.requests->spend(1, now);
  if (account.tokens) account.tokens->spend(tokens, now);
  ++account.under_way;
  return Lease(*this, index);
}

KeyRing::Lease::~Lease() {
  if (ring_ == nullptr) return;
  Account& account = *ring_->accounts_[index_];
  std::lock_guard lock(account.mutex);
  --account.under_way;
}

void KeyRing::Lease::charge_tokens(uint64_t tokens, TimePoint now) {
  if (ring_ == nullptr) return;
  Account& account = *ring_->accounts_[index_];
  std::lock_guard lock(account.mutex);
  if (account.tokens) account.tokens->spend(static_cast<double>(tokens), now);
}

Headers KeyRing::rate_headers(size_t index, TimePoint now) {
  Account& account = *accounts_[index];
  std::lock_guard lock(account.mutex);
  Headers headers;
  if (account.requests) add_headers(*account.requests, "requests", now, headers);
  if (account.tokens) add_headers(*account.tokens, "tokens", now, headers);
  return headers;
}

}  // namespace shoal
