#include "gateway/http1_text.h"

#include <algorithm>
#include <array>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "boost/asio/buffer.hpp"
#include "gateway/strings.h"

namespace shoal {
namespace {

namespace http = boost::beast::http;

constexpr size_t kFieldBytes = 4;  // ": " and the line's end
constexpr uint32_t kAnswerHeadBytesMax = 64 * 1024;

// Fields about one connection, which HTTP/2 does not have (RFC 9113, section 8.2.2).
bool is_of_connection(std::string_view name) {
  static constexpr std::array<std::string_view, 6> kNames = {"connection", "keep-alive", "proxy-connection", "te", "transfer-encoding", "upgrade"};
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

}  // namespace

void Http1RequestHead::add(std::string_view name, std::string_view value, size_t bytes_max) {
  if (bytes_ > bytes_max) return;
  bytes_ += name.size() + value.size() + kFieldBytes;
  if (name == ":method") {
    method_ = value;
  } else if (name == ":path") {
    target_ = value;
  } else if (name == ":authority") {
    authority_ = value;
  } else if (name == "host") {
    host_ = value;
  } else if (!name.starts_with(':') && !is_of_connection(name)) {
    has_length_ |= name == "content-length";
    absl::StrAppend(&fields_, str(name), ": ", str(value), "\r\n");
  }
}

std::string Http1RequestHead::text(bool has_body) const {
  const std::string& host = authority_.empty() ? host_ : authority_;
  const std::string& target = target_.empty() ? authority_ : target_;  // CONNECT has no path
  return absl::StrCat(method_, " ", target, " HTTP/1.1\r\nHost: ", host, "\r\n", fields_,
                      chunked(has_body) ? "Transfer-Encoding: chunked\r\n" : "", "\r\n");
}

std::string http1_chunk(std::string_view data) { return absl::StrCat(absl::Hex(data.size()), "\r\n", str(data), "\r\n"); }

void Http1AnswerReader::expect_head() {
  parser_.emplace();
  parser_->header_limit(kAnswerHeadBytesMax);
  parser_->body_limit(boost::none);
  parser_->eager(true);
  parser_->skip(head_only_);
}

bool Http1AnswerReader::read(std::string_view bytes, std::vector<Head>& heads, std::string& body) {
  unread_.append(bytes);
  size_t at = 0;
  boost::system::error_code error;
  while (at < unread_.size() && !done() && !error) {
    at += parser_->put(boost::asio::buffer(unread_.data() + at, unread_.size() - at), error);
    if (error && error != http::error::need_more) return false;
    body += parser_->get().body();
    parser_->get().body().clear();
    if (parser_->is_header_done() && !head_read_) take_head(heads);
  }
  unread_.erase(0, at);
  return true;
}

void Http1AnswerReader::take_head(std::vector<Head>& heads) {
  Head head{.status = parser_->get().result_int()};
  for (const auto& field : parser_->get()) {
    std::string name = absl::AsciiStrToLower(std::string(field.name_string()));
    if (!is_of_connection(name)) head.fields.emplace_back(std::move(name), std::string(field.value()));
  }
  head_read_ = !head.interim();
  if (head.interim()) expect_head();
  heads.push_back(std::move(head));
}

}  // namespace shoal
