// Bulk streams over TCP, in clear or with mutual TLS.
#pragma once

#include <memory>

#include "base/tls_identity.h"
#include "transport/bulk_network.h"

namespace shoal {

std::shared_ptr<BulkNetwork> make_bulk_tcp();
StatusOr<std::shared_ptr<BulkNetwork>> make_bulk_tcp(const TlsIdentity& tls);  // InvalidArgument names the flag

}  // namespace shoal
