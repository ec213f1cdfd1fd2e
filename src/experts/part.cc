#include "experts/part.h"

#include <utility>

namespace shoal {

RequestRows ExpertPart::send(uint32_t lane, const Exchange& exchange, std::span<const RoutedRow> routed, const RemoteExpertsConfig& config, TimePoint now) {
  RequestRows rows_sent = send_rows(*link, lane, exchange, routed, now);
  const auto count = static_cast<uint32_t>(routed.size());
  sent = true;
  sent_at = now;
  late_at = now + link->trips.timeout(count, config.timeout_min, config.timeout_first);
  const Duration hedge = link->trips.hedge(count, config.hedge_min);
  hedge_at = hedge == Duration::max() || twin != 0 || relayed ? kForever : now + hedge;
  work = expert_work(count, rows_sent.experts);
  link->work += work;
  ++link->requests;
  return rows_sent;
}

void ExpertPart::disown(uint32_t lane) {
  if (!std::exchange(sent, false)) return;
  link->work -= work;
  if (link->slots[lane].state() == ClientSlot::State::kSubmitted) link->slots[lane].give_up();
}

bool ExpertPart::came(uint32_t lane) const {
  const auto word = unpack(link->channel->control(lane));
  return sent && word && word->seq == link->slots[lane].seq() && word->epoch == link->slots[lane].epoch();
}

}  // namespace shoal
