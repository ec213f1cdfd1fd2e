// HTTP/1.1 as an HTTP/2 connection needs it: the head of a stream's request is written in its words, and the answer is read
// piece by piece. No input or output. Internal to the gateway; pulls in Beast.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "boost/beast/http/parser.hpp"
#include "boost/beast/http/string_body.hpp"
#include "gateway/http_reply.h"

namespace shoal {

// The head of one request, field by field.
// REQUIRES: the fields are valid and have no line breaks, which nghttp2 sees to.
class Http1RequestHead {
 public:
  // Pseudo fields (":path") too. What comes once the fields are longer than `bytes_max` is left out: whoever reads the head with
  // the same limit still finds it too long.
  void add(std::string_view name, std::string_view value, size_t bytes_max);

  // With a body and no Content-Length the body is to follow in chunks.
  std::string text(bool has_body) const;
  bool chunked(bool has_body) const { return has_body && !has_length_; }
  bool asks_for_head_only() const { return method_ == "HEAD"; }

 private:
  std::string method_, target_, authority_, host_;
  std::string fields_;  // "name: value\r\n" each
  size_t bytes_ = 0;
  bool has_length_ = false;
};

std::string http1_chunk(std::string_view data);  // not empty
constexpr std::string_view kHttp1LastChunk = "0\r\n\r\n";

// One answer and the interim ones (status 1xx) before it.
class Http1AnswerReader {
 public:
  struct Head {
    unsigned status = 0;
    Headers fields;  // names in lower case, without those that are about the connection
    bool interim() const { return status < 200; }
  };

  explicit Http1AnswerReader(bool head_only) : head_only_(head_only) { expect_head(); }

  // Appends what `bytes` hold to `heads` and `body`. False: they are no answer of HTTP/1.1.
  bool read(std::string_view bytes, std::vector<Head>& heads, std::string& body);
  bool done() const { return head_read_ && parser_->is_done(); }  // the real answer, with its body

 private:
  using Parser = boost::beast::http::response_parser<boost::beast::http::string_body>;

  void expect_head();
  void take_head(std::vector<Head>& heads);

  const bool head_only_;
  std::optional<Parser> parser_;
  std::string unread_;  // the beginning of a line
  bool head_read_ = false;
};

}  // namespace shoal
