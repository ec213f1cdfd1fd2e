#include "transport/resolve.h"

#include <netinet/in.h>

#include <utility>

namespace shoal {
namespace {

StatusOr<std::pair<std::string, std::string>> host_and_port(const std::string& address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos || colon == 0) return invalid_argument("'", address, "' is not HOST:PORT");
  std::string host = address.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  return std::pair(std::move(host), address.substr(colon + 1));
}

}  // namespace

StatusOr<Addresses> resolve(const std::string& address, bool passive) {
  ASSIGN_OR_RETURN(const auto parts, host_and_port(address));
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = passive ? AI_PASSIVE : 0;
  addrinfo* found = nullptr;
  if (const int error = ::getaddrinfo(parts.first.c_str(), parts.second.c_str(), &hints, &found); error != 0) return unavailable(address, ": ", ::gai_strerror(error));
  return Addresses(found);
}

uint16_t port_of(const sockaddr_storage& address) {
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6*>(&address)->sin6_port : reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
}

}  // namespace shoal
