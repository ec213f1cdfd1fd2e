#include "gateway/http1_text.h"

#include <gtest/gtest.h>

namespace shoal {
namespace {

using Head = Http1AnswerReader::Head;

Http1RequestHead head_of(const Headers& fields, size_t bytes_max = 16 * 1024) {
  Http1RequestHead head;
  for (const auto& [name, value] : fields) head.add(name, value, bytes_max);
  return head;
}

TEST(Http1RequestHead, SaysTheStreamsFieldsInTheWordsOfHttp1) {
  const Http1RequestHead get = head_of({{":method", "GET"}, {":scheme", "http"}, {":authority", "a:1"}, {":path", "/x?y"}, {"host", "b"}, {"accept", "*/*"}, {"te", "trailers"}});
  EXPECT_EQ(get.text(false), "GET /x?y HTTP/1.1\r\nHost: a:1\r\naccept: */*\r\n\r\n");
  EXPECT_EQ(head_of({{":method", "GET"}, {":path", "/"}, {"host", "b"}}).text(false), "GET / HTTP/1.1\r\nHost: b\r\n\r\n");
  EXPECT_EQ(head_of({{":method", "CONNECT"}, {":authority", "a:1"}}).text(false), "CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n");
}

TEST(Http1RequestHead, ABodyOfUnknownLengthIsChunked) {
  const Headers post = {{":method", "POST"}, {":authority", "a"}, {":path", "/"}};
  EXPECT_TRUE(head_of(post).chunked(true));
  EXPECT_NE(head_of(post).text(true).find("\r\nTransfer-Encoding: chunked\r\n"), std::string::npos);
  Headers with_length = post;
  with_length.emplace_back("content-length", "3");
  EXPECT_FALSE(head_of(with_length).chunked(true));
  EXPECT_EQ(http1_chunk(std::string(26, 'x')), "1a\r\n" + std::string(26, 'x') + "\r\n");
}

TEST(Http1RequestHead, FieldsWithoutEndAreKeptToJustAboveTheLimit) {
  Headers fields;
  for (int i = 0; i < 1000; ++i) fields.emplace_back("x-" + std::to_string(i), std::string(90, 'x'));
  const size_t length = head_of(fields, 1000).text(false).size();
  EXPECT_GT(length, 1000u);
  EXPECT_LT(length, 1200u);
}

struct Got {
  std::vector<Head> heads;
  std::string body;
  bool valid = true;
  bool done = false;
};

Got read_in_pieces(const std::string& bytes, size_t piece, bool head_only = false) {
  Http1AnswerReader reader(head_only);
  Got got;
  for (size_t at = 0; at < bytes.size() && got.valid; at += piece) got.valid = reader.read(std::string_view(bytes).substr(at, piece), got.heads, got.body);
  got.done = reader.done();
  return got;
}

TEST(Http1AnswerReader, ReadsTheSameHoweverTheBytesAreCut) {
  const std::string chunked = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
                              "5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n";
  for (size_t piece = 1; piece <= chunked.size(); ++piece) {
    const Got got = read_in_pieces(chunked, piece);
    ASSERT_TRUE(got.valid && got.done) << piece;
    ASSERT_EQ(got.heads.size(), 2u) << piece;
    EXPECT_TRUE(got.heads[0].interim());
    EXPECT_EQ(got.heads[1].status, 200u);
    EXPECT_EQ(got.heads[1].fields, (Headers{{"content-type", "text/event-stream"}}));
    EXPECT_EQ(got.body, "hello world") << piece;
  }
}

TEST(Http1AnswerReader, KnowsWhichAnswersHaveNoBody) {
  EXPECT_TRUE(read_in_pieces("HTTP/1.1 204 No Content\r\n\r\n", 5).done);
  const std::string whole = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n";
  EXPECT_TRUE(read_in_pieces(whole, 5, /*head_only=*/true).done);
  EXPECT_FALSE(read_in_pieces(whole + "ab", 5).done);
  EXPECT_TRUE(read_in_pieces(whole + "abc", 5).done);
}

TEST(Http1AnswerReader, WhatIsNoAnswerIsToldApart) {
  EXPECT_FALSE(read_in_pieces("SSH-2.0-OpenSSH_9.2\r\n\r\n", 4).valid);
  EXPECT_FALSE(read_in_pieces("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", 100).valid);
}

}  // namespace
}  // namespace shoal
