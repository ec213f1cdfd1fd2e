#include "gateway/admission.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gateway/metrics_page.h"

namespace shoal {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

ApiKey key(const std::string& secret, const std::string& name, KeyLimits limits = {}) { return {name, key_digest(secret), std::move(limits)}; }

PreparedRequest request_of(size_t tokens) {
  PreparedRequest request;
  request.prompts.resize(1);
  request.prompts[0].ids.assign(tokens, 1);
  return request;
}

TEST(GivenKey, TheBearerComesBeforeTheOtherHeader) {
  EXPECT_EQ(given_key("Bearer abc", "other"), "abc");
  EXPECT_EQ(given_key("bearer   abc ", ""), "abc") << "in any case, with any blanks";
  EXPECT_EQ(given_key("", "other"), "other");
  EXPECT_EQ(given_key("Basic abc", "other"), "other");
  EXPECT_EQ(given_key("Bearer ", "other"), "other");
  EXPECT_EQ(given_key("", ""), "");
}

TEST(Admission, WithoutKeysEverybodyMayDoEverything) {
  Metrics metrics;
  Admission admission({}, metrics);
  const auto caller = admission.authenticate("", "");
  ASSERT_TRUE(caller.has_value());
  EXPECT_FALSE(caller->key.has_value());
  ModelEntry model;
  model.name = "m";
  EXPECT_TRUE(admission.may_use(*caller, model));
  EXPECT_EQ(admission.name(*caller), "");
  EXPECT_EQ(admission.payer(*caller), Payer{});
  EXPECT_THAT(admission.rate_headers(*caller), IsEmpty());
  EXPECT_TRUE(admission.admit(*caller, request_of(1'000'000)).ok());
}

TEST(Admission, AKeyIsFoundBySecretAndHeldToItsModels) {
  Metrics metrics;
  Admission admission({key("one", "first"), key("two", "second", {.models = {"nick"}})}, metrics);
  EXPECT_FALSE(admission.authenticate("", "").has_value());
  EXPECT_FALSE(admission.authenticate("Bearer three", "").has_value());
  const auto first = admission.authenticate("Bearer one", ""), second = admission.authenticate("", "two");
  ASSERT_TRUE(first && second);
  EXPECT_EQ(admission.name(*first), "first");
  EXPECT_EQ(admission.name(*second), "second");
  EXPECT_NE(admission.payer(*first).number, 0u);
  EXPECT_EQ(admission.payer(*first).weight, 1u);
  EXPECT_NE(admission.payer(*first).number, admission.payer(*second).number);
  EXPECT_EQ(admission.payer(*first), Admission({key("one", "as it is called elsewhere")}, metrics).payer(*first));
  ModelEntry model;
  model.name = "m";
  EXPECT_TRUE(admission.may_use(*first, model));
  EXPECT_FALSE(admission.may_use(*second, model));
  model.aliases = {"nick"};
  EXPECT_TRUE(admission.may_use(*second, model)) << "an alias will do";
}

TEST(Admission, WhatIsRefusedIsCountedAndALeaseGivesItsPlaceBack) {
  Metrics metrics;
  Admission admission({key("one", "first", {.concurrency = 1})}, metrics);
  const Caller caller = *admission.authenticate("Bearer one", "");
  {
    const auto lease = admission.admit(caller, request_of(1));
    ASSERT_TRUE(lease.ok());
    const auto next = admission.admit(caller, request_of(1));
    ASSERT_FALSE(next.ok());
    EXPECT_EQ(next.error().http_status, 429);
  }
  EXPECT_TRUE(admission.admit(caller, request_of(1)).ok());
  RouterSnapshot nodes;
  NodeTimeline timeline{TimePoint()};
  EXPECT_THAT(metrics.text({{}, nodes, 0, timeline}), HasSubstr("shoal_admission_rejections_total{reason=\"key_limit\"} 1"));
}

TEST(Admission, DrainingIsForGood) {
  Metrics metrics;
  Admission admission({}, metrics);
  EXPECT_FALSE(admission.draining());
  admission.drain();
  admission.drain();
  EXPECT_TRUE(admission.draining());
}

TEST(Admission, WhoFindsTheQueueFullIsToldAWaitBetweenASecondAndAMinute) {
  Metrics metrics;
  Admission admission({}, metrics);
  EXPECT_EQ(admission.retry_after(0), std::chrono::seconds(1));
  EXPECT_EQ(admission.retry_after(1'000'000), std::chrono::seconds(60)) << "nothing has ended yet";
  for (int i = 0; i < 3000; ++i) admission.answer_ended();  // 100 a second over the window
  const Duration wait = admission.retry_after(1000);        // half of them: five seconds at that rate
  EXPECT_GE(wait, std::chrono::seconds(4));
  EXPECT_LE(wait, std::chrono::seconds(20));
}

}  // namespace
}  // namespace shoal
