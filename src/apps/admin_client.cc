#include "apps/admin_client.h"

#include <pwd.h>
#include <sys/stat.h>

#include <cerrno>
#include <filesystem>
#include <fstream>

#include "CLI/CLI.hpp"
#include "apps/admin_socket.h"
#include "apps/json_values.h"
#include "gateway/listen.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

constexpr char kUnknownUrl[] = "unknown_url";  // the code of gateway/api_error.h

// "root", who owns the path or, where that cannot be looked at, a folder above it.
std::string owner_of(std::filesystem::path path) {
  struct stat info {};
  while (stat(path.c_str(), &info) != 0) {
    if (!path.has_relative_path()) return "another user";
    path = path.parent_path();
  }
  const passwd* user = getpwuid(info.st_uid);
  return user == nullptr ? absl::StrCat("user ", info.st_uid) : user->pw_name;
}

// By SIGSTOP, a debugger or Ctrl-Z.
bool is_stopped(pid_t pid) {
  std::ifstream status(absl::StrCat("/proc/", pid, "/status"));
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("State:")) return line.find_first_of("Tt", 6) < line.find('(');
  }
  return false;
}

Status no_server(absl::string_view why) {
  return unavailable("no server answers at ", why, "; start one with `shoal serve`, or name a running one with --port, --socket or --url");
}

// A server is there, but says nothing. `pid`: 0 if it is not known.
Status no_answer(const std::string& why, pid_t pid) {
  if (pid <= 0) return absl::DeadlineExceededError(why + "; a server listens there, but it hangs or has too much to do");
  if (is_stopped(pid)) return absl::DeadlineExceededError(absl::StrCat(why, "; the server, process ", pid, ", is stopped: `kill -CONT ", pid, "` lets it go on"));
  return absl::DeadlineExceededError(absl::StrCat(why, "; the server, process ", pid, ", is there, but hangs or has too much to do: look at its log, or end it with `kill ", pid, "`"));
}

// A server that was stopped answers nobody: there is no need to wait for that.
Status check_running(const HttpTarget& target) {
  if (target.unix_socket.empty()) return OkStatus();
  const SocketOwner owner = who_listens(target.unix_socket);
  return owner.pid > 0 && is_stopped(owner.pid) ? no_answer(target.shown() + ": no answer", owner.pid) : OkStatus();
}

// What an error of a call means to who asked.
Status unanswered(const HttpTarget& target, const Status& why) {
  const std::string message(why.message());
  if (why.code() == StatusCode::kCancelled) return why;
  const bool late = why.code() == StatusCode::kDeadlineExceeded;
  if (target.unix_socket.empty()) return late ? no_answer(message, 0) : no_server(message);
  const SocketOwner owner = who_listens(target.unix_socket);
  if (owner.error == 0 && late) return no_answer(message, owner.pid);
  if (owner.error != EACCES && owner.error != EPERM) return no_server(message);
  const std::string user = owner_of(target.unix_socket);
  return absl::PermissionDeniedError(absl::StrCat("the server at ", message, "; it is ", user, "'s: ask as ", user, " (sudo -u ", user, " shoal ...), or over its --admin-port with --url and --key"));
}

// The public port of a server knows none of the operator's paths.
Status at_public_address(const HttpTarget& target, const std::string& message) {
  const std::string shown = target.shown();
  const std::string advice = target.unix_socket.empty() ? " --port " + target.port + "` on its machine" : "` with the --admin-socket of that server";
  return unavailable(shown, " is not where a server answers its operator (", message, "), but rather its public address; ask with `shoal ps", advice,
                     ", or start it with --admin-port and give that as --url");
}

}  // namespace

void add_admin_flags(CLI::App& verb, AdminFlags& flags) {
  auto* socket = verb.add_option("--admin-socket,--socket", flags.socket, "Socket of the server (default: that of --port)");
  verb.add_option("--port", flags.port, "Port of the server, whose socket is asked")->capture_default_str()->check(CLI::Range(1, 65535));
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
  RETURN_IF_ERROR(check_running(target));
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
  if (!answer.ok()) return unanswered(destination_.target, answer.status());
  const auto json = parse_json(answer->body);
  if (answer->status / 100 != 2) {
    const Json error = json.ok() && json->is_object() ? json->value("error", Json()) : Json();
    const std::string message = text_at(error, "message");
    if (text_at(error, "code") == kUnknownUrl) return at_public_address(destination_.target, message);
    if (!message.empty()) return unavailable(message);
    return unavailable(where(), " answers ", answer->status, " to ", std::string(path));
  }
  if (!json.ok() || !json->is_object()) return unavailable(where(), ": the answer is not a JSON object; is this a Shoal server?");
  return *json;
}

}  // namespace shoal
