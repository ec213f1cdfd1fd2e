// Both ends of a slot in every order in which writes may come, be lost, come twice or come torn, and either side end and connect anew:
// whatever happens, the server computes only what was submitted, and the client takes each answer once and only that of its request.
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <unordered_set>
#include <vector>

#include "base/rng.h"
#include "gtest/gtest.h"
#include "slots/fuzz_targets.h"
#include "slots/slot.h"

namespace shoal {
namespace {

constexpr RequestLimits kLimits{.width = 1, .layers = 1, .experts = 2};
constexpr uint64_t kClient = 77;
const size_t kRequestHalf = request_bytes(1, 1, 1), kResponseHalf = response_bytes(1, 1);

float asked(uint32_t seq, uint16_t epoch) { return static_cast<float>(epoch * 100 + seq); }
float answered(float x) { return 1000 - x; }

struct Write {
  bool to_server;
  size_t at;
  std::vector<std::byte> bytes;
};

// What may still go wrong.
struct Faults {
  int lose = 0, repeat = 0, give_up = 0, reconnect = 0;
  bool any_order = false;    // writes come as they like; else each side's in order, as in shared memory
  bool old_writes = false;   // writes of an ended connection still come, into the memory of the next one
};

// One client, one server, one slot, and the writes between them.
struct Trial {
  Faults faults;
  uint32_t requests = 0;  // still to be submitted
  ClientSlot client;
  ServerSlot server;
  std::vector<std::byte> request = std::vector<std::byte>(kRequestHalf), response = std::vector<std::byte>(kResponseHalf);
  std::vector<std::byte> answer = std::vector<std::byte>(kResponseHalf);  // as the server made it last
  std::deque<Write> writes;
  uint16_t epoch = 1;
  bool arrived = false;  // the request's word, since the last look
  uint32_t taken = 0;    // answers
  uint64_t last_taken = 0;

  explicit Trial(const Faults& f, uint32_t n) : faults(f), requests(n) {
    client.connect(epoch, kClient, 0);
    server.attach(epoch);
  }

  std::string key() const {
    std::string key;
    const auto put = [&](uint64_t value) { key.append(reinterpret_cast<const char*>(&value), sizeof(value)); };
    const auto put_bytes = [&](const std::vector<std::byte>& bytes) { key.append(reinterpret_cast<const char*>(bytes.data()), bytes.size()); };
    for (const int n : {faults.lose, faults.repeat, faults.give_up, faults.reconnect}) put(static_cast<uint64_t>(n));
    put(requests), put(taken), put(last_taken), put(epoch), put(arrived ? 1 : 0);
    put(static_cast<uint64_t>(client.state())), put(client.seq()), put(server.seq()), put(server.serving() ? 1 : 0);
    put_bytes(request), put_bytes(response), put_bytes(answer);
    for (const Write& write : writes) put(write.to_server ? 1 : 0), put(write.at), put(write.bytes.size()), put_bytes(write.bytes);
    return key;
  }

  // Pieces of a half, the word last.
  void send(bool to_server, const std::vector<std::byte>& half, const ControlWord& word) {
    const size_t middle = to_server ? kSlotPayloadAt + 64 : kSlotPayloadAt;
    for (const auto& [begin, end] : {std::pair(kSlotHeadAt, middle), std::pair(middle, half.size())}) {
      writes.push_back({to_server, begin, {half.begin() + static_cast<ptrdiff_t>(begin), half.begin() + static_cast<ptrdiff_t>(end)}});
    }
    send_word(to_server, word);
  }
  void send_word(bool to_server, const ControlWord& word) {
    const uint64_t bits = pack(word);
    std::vector<std::byte> bytes(sizeof(bits));
    std::memcpy(bytes.data(), &bits, sizeof(bits));
    writes.push_back({to_server, 0, std::move(bytes)});
  }

  void apply(size_t i, bool keep) {
    const Write write = writes[i];
    if (!keep) writes.erase(writes.begin() + static_cast<ptrdiff_t>(i));
    std::vector<std::byte>& half = write.to_server ? request : response;
    std::copy(write.bytes.begin(), write.bytes.end(), half.begin() + static_cast<ptrdiff_t>(write.at));
    arrived |= write.to_server && write.at == 0;
  }
  // Whether no write of the same side is before it.
  bool first(size_t i) const {
    for (size_t j = 0; j < i; ++j) {
      if (writes[j].to_server == writes[i].to_server) return false;
    }
    return true;
  }

  void submit() {
    --requests;
    const ControlWord word = client.submit(SlotKind::kRequest, 0, 1, 1);
    std::vector<std::byte> half(kRequestHalf);
    const SlotRoute route{0, 1, 1.0f};
    const RequestHead head{.layer = 0, .lane = 0, .tokens = 1, .rows = 1, .width = 1, .client = kClient, .seq = word.seq, .epoch = word.epoch};
    (*write_request(head, {&route, 1}, half))[0] = asked(word.seq, word.epoch);
    seal_request(half);
    send(true, half, word);
  }

  void look() {
    uint64_t control = 0;
    std::memcpy(&control, request.data(), sizeof(control));
    RequestView view;
    Status why;
    const auto found = server.look(control, request, kLimits, std::exchange(arrived, false), view, why);
    ASSERT_NE(found, ServerSlot::Found::kBad) << why;
    if (found == ServerSlot::Found::kRepublish) return send(false, answer, server.answered());
    if (found != ServerSlot::Found::kRequest) return;
    ASSERT_EQ(view.hidden[0], asked(view.head.seq, view.head.epoch)) << "the server computes what nobody submitted";
    ASSERT_EQ(view.head.epoch, epoch);
    const ResponseHead head{.rows = 1, .width = 1, .seq = view.head.seq, .client = kClient, .epoch = view.head.epoch};
    (*write_response(head, answer))[0] = answered(view.hidden[0]);
    seal_response(answer);
    send(false, answer, server.answer());
  }

  void hear() {
    uint64_t control = 0;
    std::memcpy(&control, response.data(), sizeof(control));
    ResponseView view;
    Status why;
    const auto heard = client.hear(control, response, view, why);
    ASSERT_NE(heard, ClientSlot::Heard::kBad) << why;
    if (heard != ClientSlot::Heard::kAnswer && heard != ClientSlot::Heard::kLate) return;
    ASSERT_EQ(view.outputs[0], answered(asked(client.seq(), epoch))) << "an answer of another request";
    const uint64_t id = uint64_t{epoch} << 32 | client.seq();
    ASSERT_GT(id, last_taken) << "an answer was taken twice";
    last_taken = id;
    taken += heard == ClientSlot::Heard::kAnswer;
  }

  // One of them ended, at whatever point of its writes, or the client gave the connection up: both begin a new one.
  void reconnect() {
    --faults.reconnect;
    if (client.state() == ClientSlot::State::kSubmitted) ++requests;  // its rows are asked for anew
    ++epoch;
    client.connect(epoch, kClient, 0);
    server.attach(epoch);
    arrived = false;
    if (faults.old_writes) return;
    writes.clear();
    std::fill(request.begin(), request.end(), std::byte{0});
    std::fill(response.begin(), response.end(), std::byte{0});
  }

  enum class Act : uint8_t { kApply, kRepeat, kLose, kSubmit, kLook, kHear, kGiveUp, kReconnect };
  struct Choice {
    Act act;
    size_t write = 0;
  };
  // The steps that may come next.
  std::vector<Choice> choices() const {
    std::vector<Choice> result;
    for (size_t i = 0; i < writes.size(); ++i) {
      if (!faults.any_order && !first(i)) continue;
      result.push_back({Act::kApply, i});
      if (faults.repeat > 0) result.push_back({Act::kRepeat, i});
      if (faults.lose > 0) result.push_back({Act::kLose, i});
    }
    if (requests > 0 && client.state() == ClientSlot::State::kIdle) result.push_back({Act::kSubmit});
    result.push_back({Act::kLook});
    result.push_back({Act::kHear});
    if (faults.give_up > 0 && client.state() == ClientSlot::State::kSubmitted) result.push_back({Act::kGiveUp});
    if (faults.reconnect > 0) result.push_back({Act::kReconnect});
    return result;
  }
  void take(const Choice& choice) {
    switch (choice.act) {
      case Act::kApply: return apply(choice.write, false);
      case Act::kRepeat: return --faults.repeat, apply(choice.write, true);
      case Act::kLose: --faults.lose, writes.erase(writes.begin() + static_cast<ptrdiff_t>(choice.write)); return;
      case Act::kSubmit: return submit();
      case Act::kLook: return look();
      case Act::kHear: return hear();
      case Act::kGiveUp: return --faults.give_up, client.give_up();
      case Act::kReconnect: return reconnect();
    }
  }
};

struct Explored {
  size_t states = 0, ends = 0;  // ends: all was answered
};

Explored explore(const Faults& faults, uint32_t requests) {
  Explored result;
  std::unordered_set<std::string> seen;
  std::vector<Trial> stack{Trial(faults, requests)};
  while (!stack.empty() && !::testing::Test::HasFailure()) {
    const Trial run = std::move(stack.back());
    stack.pop_back();
    if (!seen.insert(run.key()).second) continue;
    ++result.states;
    result.ends += run.requests == 0 && run.client.state() == ClientSlot::State::kIdle && run.taken > 0;
    for (const Trial::Choice& choice : run.choices()) {
      stack.push_back(run);
      stack.back().take(choice);
    }
  }
  return result;
}

TEST(SlotProtocol, InOrderEveryInterleavingEndsWithItsAnswers) {
  const Explored all = explore({}, 4);
  EXPECT_GT(all.states, 30u);
  EXPECT_GT(all.ends, 0u);
}

TEST(SlotProtocol, InOrderWithEndsOfEitherSideAtEveryWriteAndAnswersThatComeLate) {
  const Explored all = explore({.give_up = 2, .reconnect = 2}, 3);
  EXPECT_GT(all.states, 500u);
  EXPECT_GT(all.ends, 0u);
}

TEST(SlotProtocol, WritesOutOfOrderAndTornChangeNothing) { EXPECT_GT(explore({.any_order = true}, 3).states, 50u); }

TEST(SlotProtocol, WritesThatAreLostChangeNothing) {
  EXPECT_GT(explore({.lose = 2, .give_up = 1, .reconnect = 1, .any_order = true}, 2).states, 1'500u);
}

TEST(SlotProtocol, WritesThatComeTwiceChangeNothing) {
  EXPECT_GT(explore({.repeat = 2, .give_up = 1, .any_order = true}, 2).states, 5'000u);
}

TEST(SlotProtocol, WritesOfAnEndedConnectionChangeNothing) {
  EXPECT_GT(explore({.give_up = 1, .reconnect = 1, .any_order = true, .old_writes = true}, 2).states, 5'000u);
}

TEST(SlotProtocol, ALostAnswerIsPublishedAgainWhenTheRequestComesAgain) {
  Trial run({}, 1);
  run.submit();
  const std::deque<Write> request = run.writes;
  while (!run.writes.empty()) run.apply(0, false);
  run.look();
  run.writes = request;  // the answer is lost, and the request comes once more
  while (!run.writes.empty()) run.apply(0, false);
  run.look();
  while (!run.writes.empty()) run.apply(0, false);
  run.hear();
  EXPECT_EQ(run.taken, 1u);
}

TEST(SlotProtocol, ASlotThatWasGivenUpIsFreeOnceTheLateAnswerCame) {
  Trial run({}, 2);
  run.submit();
  run.client.give_up();
  EXPECT_EQ(run.client.state(), ClientSlot::State::kQuarantined);
  while (!run.writes.empty()) run.apply(0, false);
  run.look();
  while (!run.writes.empty()) run.apply(0, false);
  run.hear();
  EXPECT_EQ(run.client.state(), ClientSlot::State::kIdle);
  EXPECT_EQ(run.taken, 0u);
}

// Long runs of everything at once, by seeds.
TEST(SlotProtocol, AThousandSeedsOfAllFaultsTogether) {
  uint64_t taken = 0;
  for (uint64_t seed = 0; seed < 1000 && !HasFailure(); ++seed) {
    Trial run({.lose = 3, .repeat = 3, .give_up = 4, .reconnect = 6, .any_order = seed % 2 == 0, .old_writes = seed % 3 == 0}, 40);
    for (uint64_t i = 0; i < 1500; ++i) {
      const std::vector<Trial::Choice> choices = run.choices();
      const uint64_t draw = mix64(seed * 1'000'003 + i);
      const Trial::Choice& choice = choices[draw % choices.size()];
      const bool fault = choice.act != Trial::Act::kApply && choice.act != Trial::Act::kSubmit && choice.act != Trial::Act::kLook && choice.act != Trial::Act::kHear;
      if (fault && draw >> 32 & 31) continue;  // they are seldom
      run.take(choice);
    }
    taken += run.taken;
  }
  EXPECT_GT(taken, 1000u);
}

TEST(SlotProtocol, ADetachedSlotHearsNothingUntilItIsAttached) {
  ServerSlot server;
  RequestView view;
  Status why;
  const std::vector<std::byte> slot(kRequestHalf);
  const auto look = [&](uint16_t epoch) { return server.look(pack({1, epoch, SlotKind::kDetach, SlotState::kWritten}), slot, kLimits, false, view, why); };
  server.attach(4);
  EXPECT_EQ(look(3), ServerSlot::Found::kNothing) << "of another epoch";
  EXPECT_EQ(look(4), ServerSlot::Found::kDetach);
  EXPECT_TRUE(server.offline());
  EXPECT_EQ(look(4), ServerSlot::Found::kNothing);
  server.attach(5);
  EXPECT_EQ(look(5), ServerSlot::Found::kDetach);
}

TEST(SlotProtocol, RandomBytesAreNeverComputed) {
  for (uint64_t seed = 0; seed < 20'000; ++seed) {
    std::vector<std::byte> bytes(9 + mix64(seed) % 400);
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(mix64(seed * 1000 + i));
    EXPECT_FALSE(fuzz_slots(bytes)) << seed;
  }
}

TEST(SlotProtocol, OfTheCorpusWhatMayBeComputedIs) {
  std::set<std::string> computed;
  for (const auto& entry : std::filesystem::directory_iterator(SHOAL_SOURCE_DIR "/tests/corpus/slots")) {
    std::ifstream file(entry.path(), std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(file)), {});
    if (fuzz_slots(std::as_bytes(std::span(bytes)))) computed.insert(entry.path().filename().string());
  }
  EXPECT_EQ(computed, (std::set<std::string>{"answer", "no_rows", "rows", "rows_sealed_by_head", "sums"}));
}

}  // namespace
}  // namespace shoal
