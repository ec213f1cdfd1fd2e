#include "experts/link.h"

#include <algorithm>
#include <bit>
#include <thread>

#include "base/clock.h"

namespace shoal {
namespace {

constexpr uint64_t kRenewed = 16;  // round trips between looks at the percentiles
constexpr Duration kLook = std::chrono::microseconds(200);

}  // namespace

size_t RoundTrips::size_of(uint32_t rows) { return std::min<size_t>(std::bit_width(rows), kSizes - 1); }

void RoundTrips::add(uint32_t rows, Duration took) {
  sizes_[size_of(rows)].add(took);
  all_.add(took);
  if (count_++ % kRenewed != 0) return;
  p50_ = all_.percentile(0.5).count();
  p99_ = all_.percentile(0.99).count();
}

Status probe(ExpertLink& link, Duration most) {
  const TimePoint until = steady_now() + most;
  for (uint32_t lane = 0; lane < link.slots.size(); ++lane) {
    const std::span<std::byte> half = link.channel->outbox(lane);
    const ControlWord word = link.slots[lane].submit(SlotKind::kEmpty, 0, 0, 0);
    const RequestHead head{.lane = static_cast<uint16_t>(lane), .client = link.welcome.client, .seq = word.seq, .epoch = word.epoch};
    RETURN_IF_ERROR(write_request(head, {}, half).status());
    seal_request(half);
    link.channel->publish(lane, word, request_bytes(0, 0, 0));
    ResponseView view;
    Status why;
    while (true) {
      const auto heard = link.slots[lane].hear(link.channel->control(lane), link.channel->inbox(lane), view, why);
      if (heard == ClientSlot::Heard::kAnswer) break;
      if (heard == ClientSlot::Heard::kBad) return why;
      if (link.channel->broken() || steady_now() > until) return unavailable("'", link.name, "' does not answer a probe");
      std::this_thread::sleep_for(kLook);  // the bell is for who polls later
    }
  }
  return OkStatus();
}

}  // namespace shoal
