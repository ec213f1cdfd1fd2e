// Talking to a running server's operator endpoints: what `ps`, `load`, `unload` and `stop` share.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/status.h"
#include "base/time.h"
#include "loadgen/http_call.h"

namespace CLI {
class App;
}

namespace shoal {

struct AdminFlags {
  std::string socket;      // empty: the default one of `port`
  uint16_t port = 8080;
  std::string url;         // instead of a socket
  std::string key;
  bool as_json = false;
};
void add_admin_flags(CLI::App& verb, AdminFlags& flags);

class AdminClient {
 public:
  // InvalidArgument for flags that make no address. Connects with the first call.
  static StatusOr<std::unique_ptr<AdminClient>> open(const AdminFlags& flags);

  // The answer's JSON object. Unavailable, with how to start a server, if none listens; DeadlineExceeded if one listens and
  // does not answer, PermissionDenied if it is another user's, Cancelled after cancel(); what the server says of an error otherwise.
  StatusOr<Json> call(std::string_view method, std::string_view path, const std::string& body = "",
                      Duration timeout = std::chrono::seconds(10));

  void cancel() { caller_->cancel(); }  // what is under way; from any thread
  std::string where() const { return destination_.target.shown(); }

 private:
  AdminClient() = default;
  Destination destination_;
  std::unique_ptr<HttpCaller> caller_;
};

}  // namespace shoal
