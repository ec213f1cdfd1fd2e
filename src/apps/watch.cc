// shoal top, trace, reload: looking at a running server, and telling it to read its settings again.
#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <deque>
#include <memory>
#include <thread>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "apps/admin_client.h"
#include "apps/json_values.h"
#include "apps/output_file.h"
#include "apps/table.h"
#include "apps/terminal.h"
#include "apps/top.h"
#include "apps/verbs.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

constexpr size_t kWidth = 140;                                  // where there is no terminal
constexpr size_t kWindow = 10;                                  // answers that rates are taken over
constexpr Duration kTraceTime = std::chrono::minutes(1);

void on_resize(int) {}  // poll() returns: draw anew

// The terminal as a canvas: another screen, no cursor, keys without Enter. As it was before at the end.
class Canvas {
 public:
  Canvas() : keys_(stdin_is_terminal() && tcgetattr(STDIN_FILENO, &before_) == 0) {
    struct sigaction action {};
    action.sa_handler = on_resize;
    action.sa_flags = SA_RESTART;  // of what is under way, a write or a request, only poll() returns
    sigaction(SIGWINCH, &action, nullptr);
    catch_interrupts();
    if (keys_) {
      termios raw = before_;
      raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
      tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    }
    show_text("\033[?1049h\033[?25l");
  }
  ~Canvas() {
    show_text("\033[?25h\033[?1049l");
    if (keys_) tcsetattr(STDIN_FILENO, TCSANOW, &before_);
  }

  // False once nobody looks any more.
  static bool draw(const std::string& text) {
    std::string out = "\033[H";
    for (size_t at = 0; at < text.size();) {
      const size_t end = std::min(text.find('\n', at), text.size());
      absl::StrAppend(&out, text.substr(at, end - at), "\033[K");  // the rest of the line before
      if (end + 1 < text.size()) out += "\r\n";
      at = end + 1;
    }
    return show_text(out + "\033[J");
  }
  // Waits; false if somebody wants to leave.
  bool wait(Duration time) const {
    pollfd input{keys_ ? STDIN_FILENO : -1, POLLIN, 0};
    const int ready = poll(&input, 1, static_cast<int>(to_seconds(time) * 1e3));
    if (interrupted()) return false;
    if (ready <= 0 || (input.revents & (POLLIN | POLLHUP)) == 0) return true;
    char key = 0;
    if (read(STDIN_FILENO, &key, 1) <= 0) return false;
    return key != 'q' && key != 'Q' && key != 3 && key != 4;
  }

 private:
  termios before_{};
  const bool keys_;
};

TopScreen screen_of(const std::string& server, bool whole) {
  TopScreen screen{.width = kWidth, .color = dims_text(), .server = server};
  winsize size{};
  if (const size_t columns = stdout_columns(); columns > 0) screen.width = columns;
  if (!whole && stdout_is_terminal() && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0) screen.height = size.ws_row;
  return screen;
}

struct TopFlags : AdminFlags {
  bool once = false;
  double interval_s = 1;
};

Status top_once(AdminClient& client, const TopFlags& flags) {
  ASSIGN_OR_RETURN(const Json before, client.call("GET", "/status"));
  std::this_thread::sleep_for(from_seconds(flags.interval_s));  // rates are of this time
  ASSIGN_OR_RETURN(const Json now, client.call("GET", "/status"));
  show_text(flags.as_json ? dump_json(top_json(now, before), 2) + "\n" : top_screen(now, before, screen_of(client.where(), true)));
  return OkStatus();
}

Status top(const TopFlags& flags) {
  ASSIGN_OR_RETURN(const auto client, AdminClient::open(flags));
  if (flags.once || flags.as_json || !stdout_is_terminal()) return top_once(*client, flags);
  ASSIGN_OR_RETURN(Json first, client->call("GET", "/status"));
  std::deque<Json> seen = {std::move(first)};
  const Canvas canvas;
  int looks = 0;
  do {
    ASSIGN_OR_RETURN(Json now, client->call("GET", "/status"));
    if (!Canvas::draw(top_screen(now, seen.front(), screen_of(client->where(), false)))) return OkStatus();
    seen.push_back(std::move(now));
    if (seen.size() > kWindow) seen.pop_front();
    ++looks;
  } while (canvas.wait(from_seconds(flags.interval_s)));
  return interrupted() ? absl::CancelledError("stopped after " + count_text(looks, "look")) : OkStatus();
}

struct TraceFlags : AdminFlags {
  std::string output;
};

Status trace(const TraceFlags& flags) {
  if (flags.output != "-") RETURN_IF_ERROR(check_output("--output", flags.output));
  ASSIGN_OR_RETURN(const auto client, AdminClient::open(flags));
  ASSIGN_OR_RETURN(const Json trace, client->call("GET", "/trace", "", kTraceTime));
  const std::string text = dump_json(trace) + "\n";
  if (flags.output.empty() || flags.output == "-") return show_text(text) ? OkStatus() : unavailable("nobody reads the output any more");
  RETURN_IF_ERROR(write_output(flags.output, text));
  std::fprintf(stderr, "%zu events in %s; open it in https://ui.perfetto.dev or chrome://tracing\n", list_at(trace, "traceEvents").size(), flags.output.c_str());
  return OkStatus();
}

Status reload(const AdminFlags& flags) {
  ASSIGN_OR_RETURN(const auto client, AdminClient::open(flags));
  ASSIGN_OR_RETURN(const Json answer, client->call("POST", "/admin/reload", "{}", kTraceTime));
  if (flags.as_json) return show_text(dump_json(answer, 2) + "\n") ? OkStatus() : unavailable("nobody reads the output any more");
  bool any = false;
  for (const char* key : {"added", "removed", "changed", "refused", "restart_needed"}) {
    std::vector<std::string> names;
    for (const Json& name : list_at(answer, key)) names.push_back(name.is_string() ? name.get<std::string>() : dump_json(name));
    if (names.empty()) continue;
    any = true;
    show_text(absl::StrCat(std::string_view(key) == "restart_needed" ? "takes effect with a restart" : key, ": ", absl::StrJoin(names, ", "), "\n"));
  }
  if (!any) show_text("nothing has changed\n");
  return OkStatus();
}

}  // namespace

RunVerb add_top(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("top", "Watch the models and devices of a running server");
  auto flags = std::make_shared<TopFlags>();
  add_admin_flags(*verb, *flags);
  verb->add_flag("--once", flags->once, "Print one screen and end");
  verb->add_option("-d,--interval", flags->interval_s, "Seconds between two looks")->capture_default_str()->check(CLI::Range(0.1, 3600.0));
  verb->footer("NEXT is the place of a model in the line for the device, RUN and WAIT are its requests. TOK/S, PROMPT/S and ON TIME (share of tokens by\n"
               "their deadline, which TTFT and TBT set) are of the last seconds; SINCE START is that share since the server began. A load that lets nobody\n"
               "wait happens while the device computes for others. In the bar W is weights, K is KV. q ends; so does Ctrl-C, with exit code 130.\n\n"
               "Examples:\n  shoal top\n  shoal top --port 9000 --interval 0.5\n  shoal top --once --json");
  return [flags] { return exit_code(top(*flags)); };
}

RunVerb add_trace(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("trace", "The timeline of a running server, for Perfetto");
  auto flags = std::make_shared<TraceFlags>();
  add_admin_flags(*verb, *flags);
  verb->add_option("-o,--output", flags->output, "File to write (default: stdout)");
  verb->footer("Trace Event Format: turns, loads of weights by stage, copies of KV and requests, as far back as the server remembers (20,000 of\n"
               "each). `shoal serve --record FILE` keeps everything.\n\nExamples:\n  shoal trace -o trace.json\n  shoal trace --port 9000 | gzip > trace.json.gz");
  return [flags] { return exit_code(trace(*flags)); };
}

RunVerb add_reload(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("reload", "Tell a running server to read its settings and its folder of models again");
  auto flags = std::make_shared<AdminFlags>();
  add_admin_flags(*verb, *flags);
  verb->footer("As SIGHUP. A file with a fault changes nothing.\n\nExamples:\n  shoal config check models/ && shoal reload\n  shoal reload --port 9000 --json");
  return [flags] { return exit_code(reload(*flags)); };
}

}  // namespace shoal
