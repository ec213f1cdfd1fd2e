#include "loadgen/http_target.h"

#include <algorithm>

#include "workload/views.h"

namespace shoal {
namespace {

constexpr size_t kUrlBytesMax = 2048;

bool is_port(std::string_view text) {
  const auto port = number_in<uint16_t>(text);
  return port && *port > 0;
}

bool printable(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < 0x7f; });
}

// "host", "host:port", "[v6]", "[v6]:port".
Status split_authority(std::string_view text, HttpTarget& target) {
  if (drop_prefix(text, "[")) {
    const size_t end = text.find(']');
    if (end == std::string_view::npos) return invalid_argument("the address has no closing bracket");
    target.host = text.substr(0, end);
    text.remove_prefix(end + 1);
  } else {
    target.host = text.substr(0, text.find(':'));
    text.remove_prefix(target.host.size());
  }
  if (target.host.empty()) return invalid_argument("there is no host name");
  if (text.empty()) return OkStatus();
  if (!drop_prefix(text, ":") || !is_port(text)) return invalid_argument("'", own(text), "' is no port (1 to 65535)");
  target.port = text;
  return OkStatus();
}

}  // namespace

std::string HttpTarget::host_header() const {
  if (!unix_socket.empty()) return "localhost";
  const std::string name = host.find(':') == std::string::npos ? host : "[" + host + "]";
  return port == (tls ? "443" : "80") ? name : name + ":" + port;
}

std::string HttpTarget::shown() const {
  if (!unix_socket.empty()) return "unix:" + unix_socket;
  return absl::StrCat(tls ? "https://" : "http://", host_header(), base_path);
}

StatusOr<HttpTarget> parse_url(std::string_view url) {
  if (url.empty() || url.size() > kUrlBytesMax || !printable(url)) {
    return invalid_argument("the URL is empty, too long, or holds a space or control character");
  }
  HttpTarget target;
  std::string_view rest = url;
  if (drop_prefix(rest, "unix:")) {
    drop_prefix(rest, "//");
    if (rest.empty()) return invalid_argument(own(url), ": names no socket");
    target.unix_socket = rest;
    return target;
  }
  if (drop_prefix(rest, "https://")) {
    target.tls = true;
  } else if (!drop_prefix(rest, "http://") && rest.find("://") != std::string_view::npos) {
    return invalid_argument(own(url), ": only http://, https:// and unix: are spoken");
  }
  target.port = target.tls ? "443" : "80";
  const size_t slash = std::min(rest.find('/'), rest.size());
  RETURN_IF_ERROR(annotate(split_authority(rest.substr(0, slash), target), url));
  std::string_view path = rest.substr(slash);
  if (path.find_first_of("?#") != std::string_view::npos) return invalid_argument(own(url), ": a base URL has no query");
  while (drop_suffix(path, "/")) {
  }
  target.names_v1 = drop_suffix(path, "/v1");
  target.base_path = path;
  return target;
}

}  // namespace shoal
