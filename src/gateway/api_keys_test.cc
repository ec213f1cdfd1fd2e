#include "gateway/api_keys.h"

#include <gtest/gtest.h>

#include "base/clock.h"

namespace shoal {
namespace {

using std::chrono::seconds;

TEST(ApiKeyLine, HoldsASecretAndItsLimits) {
  const auto key = parse_api_key("sk-1  name=alice rpm=60 tpm=1000 concurrency=2 weight=3 models=a,b/c \r", {});
  ASSERT_TRUE(key.ok()) << key.status();
  EXPECT_EQ(key->weight, 3u);
  EXPECT_EQ(key->name, "alice");
  EXPECT_EQ(key->limits, (KeyLimits{60, 1000, 2, {"a", "b/c"}}));
  EXPECT_EQ(key->digest, key_digest("sk-1"));
}

TEST(ApiKeyLine, TakesDefaultsAndAnAnonymousName) {
  const auto key = parse_api_key("sk-1 rpm=0", {.requests_per_minute = 5, .tokens_per_minute = 9});
  ASSERT_TRUE(key.ok());
  EXPECT_EQ(key->limits.requests_per_minute, 0u);
  EXPECT_EQ(key->weight, 1u);
  EXPECT_EQ(key->limits.tokens_per_minute, 9u);
  EXPECT_EQ(key->name.rfind("key-", 0), 0u);
  EXPECT_EQ(key->name.find("sk-1"), std::string::npos);
}

TEST(ApiKeyLine, MayBeADigestInsteadOfASecret) {
  // printf secret | sha256sum
  const auto key = parse_api_key("sha256:2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b name=x", {});
  ASSERT_TRUE(key.ok()) << key.status();
  EXPECT_EQ(key->digest, key_digest("secret"));
  EXPECT_FALSE(parse_api_key("sha256:12", {}).ok());
}

TEST(ApiKeyLine, NamesTheWordThatIsWrongButNotTheSecret) {
  for (const char* line : {"", "topsecret rpm", "topsecret rpm=x", "topsecret speed=3", "topsecret rpm=-1", "topsecret name=", "topsecret weight=0", "topsecret weight=1001", "topsecret weight=0.5"}) {
    const auto key = parse_api_key(line, {});
    ASSERT_FALSE(key.ok()) << line;
    EXPECT_EQ(std::string(key.status().message()).find("topsecret"), std::string::npos);
  }
}

TEST(MinuteBudget, RefillsEvenlyAndNeverBeyondAMinute) {
  TimePoint now{};
  MinuteBudget budget(60, now);
  EXPECT_EQ(budget.wait_for(60, now), Duration(0));
  budget.spend(60, now);
  EXPECT_EQ(budget.wait_for(1, now), seconds(1));
  now += seconds(30);
  EXPECT_DOUBLE_EQ(budget.left(now), 30);
  now += seconds(3600);
  EXPECT_DOUBLE_EQ(budget.left(now), 60);
}

TEST(MinuteBudget, ADebtHoldsUpWhatComesAfter) {
  TimePoint now{};
  MinuteBudget budget(60, now);
  budget.spend(90, now);
  EXPECT_DOUBLE_EQ(budget.left(now), 0);
  EXPECT_EQ(budget.wait_for(10, now), seconds(40));
  EXPECT_EQ(budget.wait_for(1000, now), seconds(90));  // more than there ever is: when the budget is full
}

std::vector<ApiKey> ring(const std::string& line) { return {*parse_api_key("other", {}), *parse_api_key(line, {})}; }

TEST(KeyRing, FindsAKeyByItsSecretOnly) {
  const KeyRing keys(ring("mine name=m"));
  EXPECT_EQ(keys.find("mine"), std::optional<size_t>(1));
  EXPECT_EQ(keys.find("mine "), std::nullopt);
  EXPECT_EQ(keys.find(""), std::nullopt);
}

TEST(KeyRing, AllowsTheModelsOfTheKeyByNameOrAlias) {
  const KeyRing keys(ring("mine models=a,nick"));
  EXPECT_TRUE(keys.allows(0, "anything", {}));
  EXPECT_TRUE(keys.allows(1, "a", {}));
  EXPECT_TRUE(keys.allows(1, "b", {"nick"}));
  EXPECT_FALSE(keys.allows(1, "b", {"other"}));
}

TEST(KeyRing, RefusesTheRequestAfterTheLastAndSaysWhenToComeBack) {
  KeyRing keys(ring("mine rpm=2"));
  const TimePoint now = steady_now();
  EXPECT_TRUE(keys.admit(1, 10, now).ok());
  EXPECT_TRUE(keys.admit(1, 10, now).ok());
  const auto third = keys.admit(1, 10, now);
  ASSERT_FALSE(third.ok());
  EXPECT_EQ(third.error().http_status, 429);
  EXPECT_EQ(third.error().code, "rate_limit_exceeded");
  EXPECT_EQ(third.error().retry_after_s, 30u);
  EXPECT_TRUE(keys.admit(1, 10, now + seconds(30)).ok());
  EXPECT_TRUE(keys.admit(0, 10, now).ok()) << "another key's limits are its own";
}

TEST(KeyRing, ChargesThePromptAtOnceAndTheAnswerAtItsEnd) {
  KeyRing keys(ring("mine tpm=100"));
  const TimePoint now = steady_now();
  {
    auto lease = keys.admit(1, 60, now);
    ASSERT_TRUE(lease.ok());
    lease->charge_tokens(100, now);
  }
  const auto next = keys.admit(1, 1, now);
  ASSERT_FALSE(next.ok());
  EXPECT_EQ(next.error().retry_after_s, 37u);  // 61 of 100 tokens are missing
  const Headers headers = keys.rate_headers(1, now);
  ASSERT_EQ(headers.size(), 3u);
  EXPECT_EQ(headers[0], (std::pair<std::string, std::string>("x-ratelimit-limit-tokens", "100")));
  EXPECT_EQ(headers[1].second, "0");
}

TEST(KeyRing, CountsRequestsUnderWayUntilTheirLeasesEnd) {
  KeyRing keys(ring("mine concurrency=1"));
  const TimePoint now = steady_now();
  {
    auto first = keys.admit(1, 1, now);
    ASSERT_TRUE(first.ok());
    KeyRing::Lease moved = std::move(*first);
    EXPECT_EQ(keys.admit(1, 1, now).error().http_status, 429);
  }
  EXPECT_TRUE(keys.admit(1, 1, now).ok());
}

}  // namespace
}  // namespace shoal
