// The endpoints of the operator, on a listener of their own: what is resident and in line, load and unload, new
// settings, the timeline of the nodes, drain and stop. The
// shapes are those of the llama.cpp router (/models), llama-swap (/running) and Ollama (/api/ps).
#pragma once

#include <functional>
#include <future>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "gateway/service.h"

namespace shoal {

struct AdminConfig {
  std::string key;                                      // empty: whoever can connect may ask (a private socket)
  std::function<void(std::optional<Duration>)> shutdown;  // drain and end; the patience, if the caller named one
  // Reads the settings again; what changed, or why nothing did (InvalidArgument: the file is wrong).
  std::function<std::shared_future<StatusOr<Json>>()> reload;
  // Servers of experts, where this server has some: what they hold and do, and a change of that (add, drain, move, replicate). Both wait
  // for others.
  std::function<Json()> list_experts;
  std::function<StatusOr<Json>(const std::string& verb, const Json& request)> change_experts;
  Duration load_time_max = std::chrono::minutes(30);    // of a load that the caller waits for
};

// Asked again and again until it has the answer.
using PendingReply = std::function<std::optional<HttpReply>()>;
using AdminReply = std::variant<HttpReply, PendingReply>;

// All methods may be called from any thread.
class Admin {
 public:
  // Everything referred to outlives this.
  Admin(AdminConfig config, Service& service, Catalog& catalog, RouterLoop& loop);

  bool authorized(std::string_view authorization, std::string_view x_api_key) const;
  // Never slow. What is not the admin's own (health, metrics, version) is answered as on the public listener.
  AdminReply reply(std::string_view method, std::string_view target, std::string_view body);

 private:
  HttpReply models() const;
  HttpReply running() const;
  HttpReply ollama_ps() const;
  AdminReply load(std::string_view body);
  HttpReply unload(std::string_view body);
  HttpReply shutdown(std::string_view body);
  AdminReply reload();
  AdminReply experts() const;
  AdminReply change_experts(std::string_view verb, std::string_view body) const;
  std::optional<HttpReply> load_result(const ModelEntry& model, TimePoint until) const;

  const AdminConfig config_;
  Service& service_;
  Catalog& catalog_;
  RouterLoop& loop_;
};

}  // namespace shoal
