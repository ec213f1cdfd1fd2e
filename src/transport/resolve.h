// HOST:PORT as the system's addresses.
#pragma once

#include <netdb.h>

#include <memory>
#include <string>

#include "base/status.h"

namespace shoal {

struct AddressFree {
  void operator()(addrinfo* info) const { ::freeaddrinfo(info); }
};
using Addresses = std::unique_ptr<addrinfo, AddressFree>;  // a list, never empty

// "[v6]:PORT" too. `passive`: to listen at. InvalidArgument or Unavailable with the address.
StatusOr<Addresses> resolve(const std::string& address, bool passive);

// The port of a bound socket's address.
uint16_t port_of(const sockaddr_storage& address);

}  // namespace shoal
