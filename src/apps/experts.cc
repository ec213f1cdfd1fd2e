// shoal experts: what a running server's expert servers hold and do, and changes of that.
#include <cstdio>
#include <memory>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "apps/admin_client.h"
#include "apps/json_values.h"
#include "apps/table.h"
#include "apps/terminal.h"
#include "apps/verbs.h"
#include "base/bytes.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

constexpr Duration kChangeTime = std::chrono::minutes(11);  // experts are read from files

struct ExpertsFlags : AdminFlags {
  std::string address, server, model, experts, from, to;
};

std::string state_of(const Json& server) {
  if (!text_at(server, "error").empty()) return "away";
  if (server.value("draining", Json()) == true) return "drained";
  for (const Json& seen : list_at(server, "seen")) {
    if (seen.value("connected", Json()) != true) return "not connected";
    if (seen.value("suspected", Json()) == true) return "suspected";
  }
  return "serving";
}

std::string holds_text(const Json& server) {
  std::vector<std::string> parts;
  for (const Json& model : list_at(server, "models")) parts.push_back(absl::StrFormat("%s %.0f", text_at(model, "name"), number_at(model, "experts")));
  return absl::StrJoin(parts, ", ");
}

std::string micros(double us) { return us > 0 ? absl::StrFormat("%.0f us", us) : "-"; }

std::string scaling_text(const Json& scaling) {
  const auto percent = [&](const char* key) { return 100 * number_at(scaling, key); };
  std::string text = absl::StrFormat("%.0f of %.0f to %.0f servers, by load: busy for %.0f%% of their time, one more above %.0f%%, one less below %.0f%%", number_at(scaling, "servers"),
                                     number_at(scaling, "min"), number_at(scaling, "max"), percent("busy"), percent("busy_high"), percent("busy_low"));
  if (const double hidden = number_at(scaling, "hidden_us"); hidden > 0) absl::StrAppendFormat(&text, "; answers take %s (p95), of which other lanes hide %s", micros(number_at(scaling, "response_p95_us")), micros(hidden));
  if (const std::string why = text_at(scaling, "why"); !why.empty()) absl::StrAppend(&text, "; last: ", why);
  return text;
}

std::string table_of(const Json& answer) {
  Table table({{"NAME"}, {"PID", 8, true}, {"STATE"}, {"HOLDS", 3}, {"MEMORY", 4, true}, {"CLIENTS", 7, true}, {"ROWS/BATCH", 5, true}, {"EXPERTS/BATCH", 6, true}, {"BUSY", 2, true}, {"P50", 2, true}, {"P99", 2, true}, {"ADDRESS", 9}});
  for (const Json& server : list_at(answer, "data")) {
    const Json load = member(server, "load");
    double p50 = 0, p99 = 0;
    for (const Json& seen : list_at(server, "seen")) p50 = std::max(p50, number_at(seen, "round_trip_p50_us")), p99 = std::max(p99, number_at(seen, "round_trip_p99_us"));
    table.row({text_at(server, "name"), absl::StrFormat("%.0f", number_at(server, "pid")), state_of(server), holds_text(server),
               format_bytes(static_cast<uint64_t>(number_at(member(server, "memory"), "used"))), absl::StrFormat("%d", list_at(server, "clients").size()),
               absl::StrFormat("%.1f", number_at(load, "rows_per_batch")), absl::StrFormat("%.1f", number_at(load, "experts_per_batch")), absl::StrFormat("%.0f%%", 100 * number_at(load, "busy")),
               micros(p50), micros(p99), text_at(server, "address")});
  }
  const size_t width = stdout_columns();
  const Table::Lines lines = table.lines(width);
  std::string out = lines.heading + "\n";
  for (const std::string& row : lines.rows) out += row + "\n";
  for (const std::string& line : left_out_lines(lines.left_out, width)) out += line + "\n";
  if (const Json keeper = member(answer, "keeper"); !text_at(keeper, "why").empty()) absl::StrAppend(&out, "not as it should be: ", text_at(keeper, "why"), "\n");
  if (const Json scaling = member(answer, "scaling"); !scaling.empty()) absl::StrAppend(&out, scaling_text(scaling), "\n");
  if (!answer.contains("counts")) return out;
  const Json counts = member(answer, "counts");
  absl::StrAppendFormat(&out, "%.0f requests, %.0f rows; sent again %.0f rows after %.0f losses and %.0f time-outs; %.0f passes deferred\n", number_at(counts, "requests"), number_at(counts, "rows_asked"),
                        number_at(counts, "rows_resent"), number_at(counts, "losses"), number_at(counts, "timeouts"), number_at(counts, "deferred"));
  return out;
}

Status list(const ExpertsFlags& flags) {
  ASSIGN_OR_RETURN(const auto client, AdminClient::open(flags));
  ASSIGN_OR_RETURN(const Json answer, client->call("GET", "/experts"));
  return show_text(flags.as_json ? dump_json(answer, 2) + "\n" : table_of(answer)) ? OkStatus() : unavailable("nobody reads the output any more");
}

Status change(const ExpertsFlags& flags, const std::string& verb) {
  ASSIGN_OR_RETURN(const auto client, AdminClient::open(flags));
  Json body = Json::object();
  for (const auto& [key, value] : {std::pair("address", &flags.address), {"server", &flags.server}, {"model", &flags.model}, {"experts", &flags.experts}, {"from", &flags.from}, {"to", &flags.to}}) {
    if (!value->empty()) body[key] = *value;
  }
  ASSIGN_OR_RETURN(const Json answer, client->call("POST", "/experts/" + verb, dump_json(body), kChangeTime));
  show_text((flags.as_json ? dump_json(answer) : text_at(answer, "done")) + "\n");
  return OkStatus();
}

}  // namespace

RunVerb add_experts(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("experts", "The expert servers of a running server: list, add, drain, move, replicate, balance");
  verb->require_subcommand(1);
  auto flags = std::make_shared<ExpertsFlags>();
  const auto subcommand = [&](const char* name, const char* what) {
    CLI::App* const sub = verb->add_subcommand(name, what);
    add_admin_flags(*sub, *flags);
    return sub;
  };
  const auto names_experts = [&](CLI::App* sub) {
    sub->add_option("experts", flags->experts, "LAYERS:IDS, as in '0-3:0-7,12'")->required();
    sub->add_option("--model", flags->model, "Name of the model (default: the only one)");
    sub->add_option("--to", flags->to, "Name of the server that is to hold them")->required();
  };
  subcommand("list", "What each server holds and does");
  subcommand("add", "Ask one more server, which runs already")->add_option("address", flags->address, "unix:PATH or HOST:PORT")->required();
  subcommand("drain", "Ask a server no more; what it alone holds is copied elsewhere first")->add_option("server", flags->server, "Its name or address")->required();
  CLI::App* const move = subcommand("move", "From one server to another: copied, then published, then dropped");
  names_experts(move);
  move->add_option("--from", flags->from, "Name of the server that is to hold them no more")->required();
  names_experts(subcommand("replicate", "One more copy"));
  subcommand("balance", "Let load decide again what servers hold, after moves and copies by hand");
  verb->footer("Examples:\n  shoal experts list\n  shoal experts add unix:/run/shoal/expert-2.sock\n  shoal experts move 0-3:4,7 --from expert-0 --to expert-1\n  shoal experts drain expert-0");
  return [flags, verb] {
    const std::string name = verb->get_subcommands().front()->get_name();
    return exit_code(name == "list" ? list(*flags) : change(*flags, name));
  };
}

}  // namespace shoal
