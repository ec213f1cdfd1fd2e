// Bulk streams over UCX: RDMA between machines that have it, else the best of what UCX knows. In clear.
//
// A stream is active messages: what is written goes as messages of at most kUcxPieceBytes, the large ones by rendezvous, so that a
// reader whose buffer has room gets them there without another copy, and a writer waits for a reader that is slow.
#pragma once

#include <memory>

#include "transport/bulk_network.h"

namespace shoal {

constexpr size_t kUcxPieceBytes = 512u << 10;

// Connects to "ucx:HOST:PORT" over UCX and to other addresses as `other` does. `listens`: it is reached over UCX itself, else as `other`
// is. UCX is started when it is first needed: the network is Unavailable from there on if that fails.
std::shared_ptr<BulkNetwork> make_bulk_ucx(std::shared_ptr<BulkNetwork> other, bool listens);

}  // namespace shoal
