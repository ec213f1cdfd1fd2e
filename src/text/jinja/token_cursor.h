// A place among the tokens of a template, and the errors of what is not there.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/lexer.h"
#include "text/jinja/value.h"

namespace shoal::jinja {

// at_...() look, take_...() go on if it is there, expect_...() throw a Fault with the line if it is not.
class TokenCursor {
 public:
  // REQUIRES: the last token is kEnd.
  explicit TokenCursor(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& now() const { return tokens_[next_]; }
  const Token& after() const { return tokens_[next_ + 1]; }  // REQUIRES: now() is not kEnd
  bool at(TokenKind kind) const { return now().kind == kind; }
  bool at_name(std::string_view name) const { return at(TokenKind::kName) && now().text == name; }
  bool at_op(std::string_view op) const { return at(TokenKind::kOperator) && now().text == op; }
  // To the next token; at the end, nothing.
  void skip() {
    if (!at(TokenKind::kEnd)) ++next_;
  }
  bool take_op(std::string_view op) { return at_op(op) && (skip(), true); }
  bool take_name(std::string_view name) { return at_name(name) && (skip(), true); }
  // Throws a Fault: "line N: ...".
  [[noreturn]] void bad(const std::string& why) const { fail("line ", now().line, ": ", why); }
  // The token as messages name it.
  std::string describe() const {
    switch (now().kind) {
      case TokenKind::kEnd: return "end of template";
      case TokenKind::kBlockEnd: return "'%}'";
      case TokenKind::kVariableEnd: return "'}}'";
      default: return "'" + now().text + "'";
    }
  }
  void expect_op(std::string_view op) {
    if (!take_op(op)) bad("expected '" + std::string(op) + "', got " + describe());
  }
  void expect_name(std::string_view name) {
    if (!take_name(name)) bad("expected '" + std::string(name) + "', got " + describe());
  }
  std::string take_identifier() {
    if (!at(TokenKind::kName)) bad("expected a name, got " + describe());
    std::string name = now().text;
    skip();
    return name;
  }
  void end_block() {
    if (!at(TokenKind::kBlockEnd)) bad("expected '%}', got " + describe());
    skip();
  }

 private:
  std::vector<Token> tokens_;
  size_t next_ = 0;
};

}  // namespace shoal::jinja
