#include "slots/message.h"

#include <array>
#include <cstring>
#include <string>

#include "absl/strings/escaping.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace shoal {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr RequestLimits kLimits{.width = 2, .layers = 4, .experts = 8};

std::string hex(std::span<const std::byte> bytes) {
  return absl::BytesToHexString(absl::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

RequestHead request_head() {
  return {.layer = 3, .lane = 1, .tokens = 1, .rows = 2, .width = 2, .client = 9, .placement = 5, .slack_us = 700, .seq = 7, .epoch = 2, .submitted_ns = 11};
}
ControlWord request_word() { return {7, 2, SlotKind::kRequest, SlotState::kWritten}; }

std::vector<std::byte> a_request(const std::vector<SlotRoute>& routes = {{0, 1, 0.25f}, {0, 6, 0.75f}}) {
  std::vector<std::byte> slot(1024);
  const auto hidden = write_request(request_head(), routes, slot);
  (*hidden)[0] = 1.0f, (*hidden)[1] = -2.0f;
  seal_request(slot);
  return slot;
}

std::vector<std::byte> a_response() {
  std::vector<std::byte> slot(1024);
  const ResponseHead head{.layer = 3, .lane = 1, .rows = 1, .width = 2, .status = SlotStatus::kOk, .seq = 7, .client = 9, .epoch = 2,
                          .batch_clients = 3, .batch_rows = 17, .service_us = 40, .queue_us = 2, .placement = 5};
  const auto outputs = write_response(head, slot);
  (*outputs)[0] = 1.0f, (*outputs)[1] = -2.0f;
  seal_response(slot);
  return slot;
}

TEST(SlotMessage, AControlWordIsFourFieldsInOneWord) {
  const ControlWord word{0x01020304, 0x0506, SlotKind::kRequest, SlotState::kDone};
  EXPECT_EQ(pack(word), 0x0102030405060102u);
  EXPECT_EQ(unpack(pack(word)), word);
  EXPECT_FALSE(unpack(0).has_value());
  EXPECT_FALSE(unpack(UINT64_MAX).has_value());
}

TEST(SlotMessage, RowsThatAreSummedSaySoAndOnlyWithThoseOfTheirToken) {
  std::vector<std::byte> slot(1024);
  RequestHead head = request_head();
  head.tokens = 2, head.rows = 3, head.sums = true;
  const auto write = [&](const std::vector<SlotRoute>& routes) {
    *write_request(head, routes, slot);
    seal_request(slot);
    RequestView view;
    const Status read = read_request(request_word(), slot, kLimits, view);
    return read.ok() ? StatusOr<RequestView>(view) : read;
  };
  const auto view = write({{0, 1, 0.5f}, {0, 2 | kSlotJoined, 0.25f}, {1, 2, 1.0f}});
  ASSERT_TRUE(view.ok()) << view.status();
  EXPECT_THAT(view->joined, ElementsAre(false, true, false));
  EXPECT_EQ(view->routes[1], (SlotRoute{0, 2, 0.25f}));
  EXPECT_FALSE(write({{0, 1 | kSlotJoined, 0.5f}, {0, 2, 0.25f}, {1, 2, 1.0f}}).ok());
  EXPECT_FALSE(write({{0, 1, 0.5f}, {1, 2 | kSlotJoined, 0.25f}, {1, 3, 1.0f}}).ok());
  EXPECT_FALSE(write({{0, 1, 0.5f}, {0, 9 | kSlotJoined, 0.25f}, {1, 3, 1.0f}}).ok()) << "no such expert";
  head.sums = false;
  EXPECT_FALSE(write({{0, 1, 0.5f}, {0, 2 | kSlotJoined, 0.25f}, {1, 2, 1.0f}}).ok());
}

TEST(SlotMessage, TheBytesOfARequestAreForEver) {
  const std::vector<std::byte> slot = a_request();
  EXPECT_EQ(hex(std::span(slot).subspan(64, 64)),
            "5358513101000300010000000200000002000000010101000900000000000000"
            "05000000bc0200000700000002000000" "0b000000000000004800000000000000");
  EXPECT_EQ(hex(std::span(slot).subspan(128, 16)), "000001000000803e000006000000403f");
  EXPECT_EQ(hex(std::span(slot).subspan(192, 24)), "0000803f000000c00700000002000000" + hex(std::span(slot).subspan(208, 8)));
  EXPECT_EQ(slot_checksum(std::span(slot).subspan(64, 64 + 72), 7), 0x22e44d8d19e91f6bu);
}

TEST(SlotMessage, TheBytesOfAResponseAreForEver) {
  const std::vector<std::byte> slot = a_response();
  EXPECT_EQ(hex(std::span(slot).subspan(64, 72)),
            "5358413101000300010000000200000000000100070000000900000000000000"
            "02000300110000002800000002000000" "0500000000000000080000000000000" "00000803f000000c0");
}

TEST(SlotMessage, ARequestIsReadAsItWasWritten) {
  const std::vector<std::byte> slot = a_request();
  RequestView view;
  ASSERT_TRUE(read_request(request_word(), slot, kLimits, view).ok());
  EXPECT_EQ(view.head, request_head());
  EXPECT_THAT(view.routes, ElementsAre(SlotRoute{0, 1, 0.25f}, SlotRoute{0, 6, 0.75f}));
  EXPECT_THAT(view.hidden, ElementsAre(1.0f, -2.0f));
}

TEST(SlotMessage, AnyByteThatIsNotTheWritersIsSeen) {
  const std::vector<std::byte> whole = a_request();
  const size_t end = request_bytes(1, 2, 2);
  for (size_t at = kSlotHeadAt; at < end; ++at) {
    std::vector<std::byte> slot = whole;
    slot[at] ^= std::byte{0x10};
    RequestView view;
    EXPECT_EQ(read_request(request_word(), slot, kLimits, view).code(), StatusCode::kDataLoss) << at;
  }
  const std::vector<std::byte> answer = a_response();
  for (size_t at = kSlotHeadAt; at < response_bytes(1, 2); ++at) {
    std::vector<std::byte> slot = answer;
    slot[at] ^= std::byte{0x10};
    ResponseView view;
    EXPECT_EQ(read_response({7, 2, SlotKind::kRequest, SlotState::kDone}, slot, view).code(), StatusCode::kDataLoss) << at;
  }
}

TEST(SlotMessage, SealedByItsHeadTheNumbersAndRoutesAreCoveredAndThePayloadIsNot) {
  const std::vector<SlotRoute> routes{{0, 1, 0.25f}, {0, 6, 0.75f}};
  RequestHead head = request_head();
  head.seal = SlotSeal::kHead;
  std::vector<std::byte> whole(request_bytes(1, 2, 2));
  const auto hidden = write_request(head, routes, whole);
  ASSERT_TRUE(hidden.ok());
  (*hidden)[0] = 1, (*hidden)[1] = 2;
  seal_request(whole);
  const auto* const payload = reinterpret_cast<const std::byte*>(hidden->data());
  for (size_t at = kSlotHeadAt; at < whole.size(); ++at) {
    std::vector<std::byte> slot = whole;
    slot[at] ^= std::byte{0x10};
    RequestView view;
    const bool of_payload = whole.data() + at >= payload && whole.data() + at < payload + 2 * sizeof(float);
    EXPECT_EQ(read_request(request_word(), slot, kLimits, view).ok(), of_payload) << at;
  }
}

TEST(SlotMessage, ASlotThatEndsTooSoonHoldsNothing) {
  const std::vector<std::byte> whole = a_request();
  for (const size_t bytes : {size_t{0}, size_t{64}, size_t{143}, request_bytes(1, 2, 2) - 1}) {
    RequestView view;
    EXPECT_EQ(read_request(request_word(), std::span(whole).first(bytes), kLimits, view).code(), StatusCode::kDataLoss) << bytes;
  }
}

TEST(SlotMessage, WhatIsSealedAndSenselessIsNamed) {
  RequestView view;
  const auto why = [&](const std::vector<std::byte>& slot, const RequestLimits& limits = kLimits) {
    const Status status = read_request(request_word(), slot, limits, view);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_THAT(why(a_request({{0, 1, 0}, {0, 8, 0}})), HasSubstr("expert 8"));
  EXPECT_THAT(why(a_request({{1, 1, 0}, {0, 2, 0}})), HasSubstr("token 1"));
  EXPECT_THAT(why(a_request(), {.width = 4, .layers = 4, .experts = 8}), HasSubstr("rows of 2 numbers"));
  EXPECT_THAT(why(a_request(), {.width = 2, .layers = 3, .experts = 8}), HasSubstr("layer 3 of 3"));
  std::vector<std::byte> later = a_request();
  later[68] = std::byte{2};
  seal_request(later);
  EXPECT_THAT(why(later), HasSubstr("version 2"));
  EXPECT_EQ(view.head.seq, 7u);
}

TEST(SlotMessage, WhatDoesNotFitTheSlotIsNotWritten) {
  std::vector<std::byte> slot(request_bytes(1, 2, 2) - 1);
  const std::array<SlotRoute, 2> routes{};
  EXPECT_FALSE(write_request(request_head(), routes, slot).ok());
  EXPECT_FALSE(write_response({.rows = 100, .width = 2}, slot).ok());
}

}  // namespace
}  // namespace shoal
