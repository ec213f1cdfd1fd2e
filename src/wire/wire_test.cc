#include <gtest/gtest.h>

#include <limits>

#include "base/rng.h"
#include "wire/message.h"
#include "wire/messages.pb.h"

namespace shoal {
namespace {

Request full_request() {
  Request r;
  r.id = {NodeId(7), 3, 0x1122334455667788ull};
  r.model = ModelId(3);
  r.epoch = 2;
  r.prompt = {1, 2, 151643};
  r.output = {9};
  r.sampling.temperature = 0.5f;
  r.sampling.top_k = 40;
  r.sampling.top_p = 0.9f;
  r.sampling.min_p = 0.05f;
  r.sampling.presence_penalty = -1.0f;
  r.sampling.frequency_penalty = 0.25f;
  r.sampling.repetition_penalty = 1.1f;
  r.sampling.logit_bias = {{5, -100.0f}, {6, 2.5f}};
  r.sampling.seed = 42;
  r.sampling.logprobs = 0;
  r.sampling.typical_p = 0.75f;
  r.sampling.top_n_sigma = 1.5f;
  r.sampling.xtc_probability = 0.5f;
  r.sampling.xtc_threshold = 0.25f;
  r.sampling.dry = {0.8f, 1.5f, 3, 512};
  r.sampling.mirostat = {2, 4.5f, 0.25f};
  r.sampling.rules = TokenRules{{1, 5, 9}, {{4}, {5, 6}}, {{7}, {8, 9}}};
  r.mirostat_mu = 9.5f;
  r.sampling.grammar = Grammar{"root ::= \"a\"", {"</think>", "<tool>"}};
  r.max_tokens = 100;
  r.min_tokens = 4;
  r.stop_ids = {2, 7};
  r.prompt_logprobs = 5;
  r.priority = -3;
  r.payer = {0xfedcba98, 25};
  r.ttft_max = std::chrono::milliseconds(300);
  r.tbt_max = std::chrono::milliseconds(20);
  r.weights = ModelDigest(1ull << 63, {9, 8});
  return r;
}

std::vector<Message> samples() {
  Tokens tokens{{NodeId(7), 3, 7}, 1, 5, {{3, -0.5f, {{3, -0.5f}, {4, -1.0f}}, 1, 8.5f}}, {{8, -2.0f, {}}}, FinishReason::kStop, "", StatusCode::kOk, 32, std::chrono::milliseconds(5), {}, 77};
  Tokens failed{RequestId(8), 0, 0, {}, {}, FinishReason::kError, "no", StatusCode::kInternal, 0, {}, std::chrono::seconds(3)};
  NodeStatus status{5, 1 << 30, 1 << 20, 1 << 21};
  status.models.resize(1);
  status.models[0].state = ModelState::kLoading;
  status.models[0].progress = 0.25f;
  status.models[0].generated_tokens = 1ull << 40;
  status.models[0].steps_by_tokens = {0, 3, 1ull << 33};
  status.models[0].step_tokens = 77;
  status.at = TimePoint(std::chrono::seconds(9));
  SwitchRecord record{ModelId(3), {ModelId(1), ModelId(2)}, SwitchEnd::kCancelled, TimePoint(Duration(1)), TimePoint(Duration(2))};
  record.stages = {0.1, 0.2, 0.3, 0.4, 0.5, 6, 7};
  record.visible_seconds = 0.25;
  record.ahead = true;
  status.switches = {record, SwitchRecord{}};
  status.events = {{DeviceAct::kKvIn, ModelId(2), TimePoint(Duration(5)), TimePoint(Duration(9)), 3, 4096}, {}};
  status.next = {ModelId(3), ModelId(0)};
  status.kv_bytes_bound = 7;
  status.kv_bytes_free = 6;
  status.host_bytes = 5;
  status.kv_bytes_out = 4;
  status.kv_bytes_in = 3;
  status.models[0].parkings = 2;
  status.models[0].kv_bytes_host = 1;
  status.models[0].wait_seconds = 0.5;
  status.models[0].switch_seconds = 1.5;
  status.models[0].prompt_token_seconds = 2e-3;
  status.models[0].experts = {30, 20, 4096, 7, 3, 250, {1.5f, 2.25f}};
  status.models[0].held_up = "layer 3, expert 4 is held by nobody";
  status.instance_role = InstanceRole::kDecode;
  status.prompt_pressure = 0.5;
  status.decode_pressure = 1.25;
  const KvTicket ticket{NodeId(4), 2, 33, 4096, 78};
  return {Configure{ModelId(4), {{std::chrono::seconds(2), std::chrono::milliseconds(50)}, std::chrono::seconds(30), std::chrono::minutes(5), -7, true, 5}},
          Configure{ModelId(0), {{Duration(1), Duration(1)}}}, Submit{full_request()}, Submit{}, Cancel{{NodeId(7), 3, 1}, 4}, SetResident{ModelId(2), false}, SetResident{ModelId(2), true},
          tokens, failed, status, NodeStatus{}, Submit{full_request(), std::chrono::seconds(2), ticket},
          Handover{{NodeId(7), 3, 3}, 1, ticket}, Handover{RequestId(3), 1, {}}, KvTaken{RequestId(3), 1}, KvTaken{{NodeId(7), 3, 3}, 1, true}, KvWanted{{NodeId(7), 3, 3}, 1},
          KvGranted{{NodeId(7), 3, 3}, 1, {BlockId(7), BlockId(0)}}, KvGranted{RequestId(3), 1, {}}, SetInstanceRole{InstanceRole::kPrefill},
          MigrateRequests{ModelId(6)}};
}

TEST(Wire, EveryMessageSurvivesTheTrip) {
  for (const Message& message : samples()) {
    Message expected = message;
    if (auto* submit = std::get_if<Submit>(&expected); submit != nullptr && submit->request.prompt.empty()) {
      submit->request.sampling.top_p = 1.0f;  // defaults are facts on the wire too
    }
    const auto decoded = decode(encode(message));
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    EXPECT_TRUE(*decoded == expected);
  }
}

TEST(Wire, TheBytesAreTheseAndStayThese) {
  const std::string bytes = encode(Cancel{RequestId(0x0102030405060708ull), 3});
  const unsigned char golden[] = {0x12, 0x0b, 0x09, 0x08, 0x07, 0x06, 0x05, 0x04, 0x03, 0x02, 0x01, 0x10, 0x03};
  EXPECT_EQ(bytes, std::string(reinterpret_cast<const char*>(golden), sizeof(golden)));
  const std::string resident = encode(SetResident{ModelId(2), true});
  const unsigned char golden_resident[] = {0x1a, 0x04, 0x08, 0x02, 0x10, 0x01};
  EXPECT_EQ(resident, std::string(reinterpret_cast<const char*>(golden_resident), sizeof(golden_resident)));
}

TEST(Wire, DamagedBytesAreRefusedOrReadAsSomeMessageButNeverCrash) {
  Rng rng(1);
  for (const Message& message : samples()) {
    const std::string bytes = encode(message);
    for (int i = 0; i < 3000; ++i) {
      std::string damaged = bytes;
      for (uint64_t n = rng.below(4); n > 0 && !damaged.empty(); --n) damaged[rng.below(damaged.size())] = static_cast<char>(rng.bits());
      damaged.resize(rng.below(damaged.size() + 1));
      const auto decoded = decode(damaged);
      if (!decoded.ok()) continue;
      EXPECT_FALSE(encode(*decoded).empty());
    }
  }
}

TEST(Wire, NumbersThatNoRoleCouldUseAreRefused) {
  Request r = full_request();
  r.sampling.temperature = std::numeric_limits<float>::quiet_NaN();
  EXPECT_FALSE(decode(encode(Submit{r})).ok());
  r = full_request();
  r.sampling.repetition_penalty = 0;
  EXPECT_FALSE(decode(encode(Submit{r})).ok());
  const auto refused = [](auto change) {
    Request request = full_request();
    change(request);
    return !decode(encode(Submit{request})).ok();
  };
  EXPECT_TRUE(refused([](Request& q) { q.sampling.typical_p = 0; }));
  EXPECT_TRUE(refused([](Request& q) { q.sampling.dry.base = 0.5f; }));
  EXPECT_TRUE(refused([](Request& q) { q.sampling.mirostat.version = 3; }));
  EXPECT_TRUE(refused([](Request& q) { q.sampling.rules = TokenRules{{3, 1}, {}, {}}; }));
  EXPECT_TRUE(refused([](Request& q) { q.sampling.rules = TokenRules{{}, {{}}, {}}; }));
  EXPECT_TRUE(refused([](Request& q) { q.mirostat_mu = std::numeric_limits<float>::infinity(); }));
  EXPECT_FALSE(decode(encode(Configure{ModelId(1), {{Duration(0), Duration(5)}}})).ok());
  EXPECT_FALSE(decode("").ok());
}

TEST(Wire, ASettingOfANewerPeerIsLeftOut) {
  const auto configure = [](char number) { return std::string{0x32, 0x08, 0x08, 0x01, 0x42, 0x04, 0x08, number, 0x10, 0x02}; };  // of model 1, to 1
  ASSERT_TRUE(decode(configure(99)).ok());
  EXPECT_EQ(std::get<Configure>(*decode(configure(99))), Configure{ModelId(1)});
  EXPECT_EQ(std::get<Configure>(*decode(configure(4))).settings.priority, 1);
}

TEST(Wire, ATicketForNothingIsRefused) {
  EXPECT_TRUE(decode(encode(Handover{RequestId(1), 1, KvTicket{NodeId(4), 2, 33, 4096}})).ok());
  EXPECT_FALSE(decode(encode(Handover{RequestId(1), 1, KvTicket{NodeId(4), 2, 0, 4096}})).ok());
  EXPECT_FALSE(decode(encode(Handover{RequestId(1), 1, KvTicket{NodeId(4), 2, 33, 0}})).ok());
}

TEST(Wire, TheLifeOfTheSenderGoesAlong) {
  const Message message = MigrateRequests{ModelId(3)};
  uint32_t life = 9;
  EXPECT_EQ(*decode(encode(message), &life), message);
  EXPECT_EQ(life, 0u);
  EXPECT_EQ(*decode(encode(message, 7), &life), message);
  EXPECT_EQ(life, 7u);
}

TEST(Wire, ADigestIsWholeOrNotThere) {
  const KvTicket ticket{NodeId(4), 2, 33, 4096, ModelDigest(7, {1, 2, 3})};
  EXPECT_EQ(std::get<Handover>(*decode(encode(Handover{RequestId(1), 1, ticket}))).kv, ticket);
  pb::Envelope envelope;
  ASSERT_TRUE(envelope.ParseFromString(encode(Handover{RequestId(1), 1, ticket})));
  envelope.mutable_handover()->mutable_kv()->set_content(std::string(31, 'x'));
  EXPECT_FALSE(decode(envelope.SerializeAsString()).ok());
}

}  // namespace
}  // namespace shoal
