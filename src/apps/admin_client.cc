#include "apps/admin_client.h"

#include "CLI/CLI.hpp"
#include "apps/admin_socket.h"
#include "nlohmann/json.hpp"

namespace shoal {

void add_admin_flags(CLI::App& verb, AdminFlags& flags) {
  auto* socket = verb.add_option("--admin-socket,--socket", flags.socket, "Socket of the server (default: that of --port)");
  verb.add_option("--port", flags.port, "Port of the server, whose socket is asked")->capture_default_str();
  auto* url = verb.add_option("--admin-url,--url", flags.url, "Operator's endpoints over TCP (serve --admin-port), e.g. http://127.0.0.1:8081");
  socket->excludes(url);
  verb.add_option("--admin-key,--key", flags.key, "Key of the operator's endpoints");
  verb.add_flag("--json", flags.as_json, "Print what the server answers");
}

StatusOr<std::unique_ptr<AdminClient>> AdminClient::open(const AdminFlags& flags) {
  HttpTarget target{.unix_socket = flags.socket.empty() ? default_admin_socket(flags.port) : flags.socket};
  if (!flags.url.empty()) {
    auto parsed = parse_url(flags.url);
    if (!parsed.ok()) return annotate(parsed.status(), "--url");
    target = *std::move(parsed);
  }
  std::unique_ptr<AdminClient> self(new AdminClient());
  ASSIGN_OR_RETURN(self->destination_, find_destination(target, /*verify=*/true));
  HttpHeaders headers;
  if (!flags.key.empty()) headers.emplace_back("Authorization", "Bearer " + flags.key);
  RETURN_IF_ERROR(check_headers(headers));
  self->caller_ = std::make_unique<HttpCaller>(self->destination_, std::move(headers));
  return self;
}

StatusOr<Json> AdminClient::call(std::string_view method, std::string_view path, const std::string& body, Duration timeout) {
  const auto answer = caller_->call(method, path, body, timeout);
  if (!answer.ok()) {
    return unavailable("no server answers at ", std::string(answer.status().message()),
                       "; start one with `shoal serve`, or name a running one with --port, --socket or --url");
  }
  const auto json = parse_json(answer->body);
  if (answer->status / 100 != 2) {
    const Json error = json.ok() && json->is_object() ? json->value("error", Json()) : Json();
    if (error.is_object() && error.contains("message") && error["message"].is_string()) return unavailable(error["message"].get<std::string>());
    return unavailable(where(), " answers ", answer->status, " to ", std::string(path));
  }
  if (!json.ok() || !json->is_object()) return unavailable(where(), ": the answer is not a JSON object; is this a Shoal server?");
  return *json;
}

}  // namespace shoal
