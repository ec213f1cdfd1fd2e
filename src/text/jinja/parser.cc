#include "text/jinja/parser.h"

#include <initializer_list>

#include "text/jinja/expression_parser.h"

namespace shoal::jinja {
namespace {

constexpr size_t kSourceBytesMax = 4 << 20;

class Parser : public ExpressionParser {
 public:
  using ExpressionParser::ExpressionParser;

  Body run() {
    Body body = parse_body({});
    if (!at(TokenKind::kEnd)) bad("unexpected '" + now().text + "'");
    return body;
  }

 private:
  // Up to, and without, a block tag named by one of `ends`; next_ is then at that name.
  Body parse_body(std::initializer_list<std::string_view> ends) {
    Deeper deeper(*this);
    Body body;
    while (!at(TokenKind::kEnd)) {
      if (at(TokenKind::kData)) {
        auto s = statement(StmtKind::kText);
        s->text = now().text;
        s->constant = Value::string(s->text);
        skip();
        body.push_back(std::move(s));
      } else if (at(TokenKind::kVariableBegin)) {
        skip();
        auto s = statement(StmtKind::kOutput);
        s->expr = parse_tuple(true);
        if (!at(TokenKind::kVariableEnd)) bad("expected '}}', got " + describe());
        skip();
        body.push_back(std::move(s));
      } else {
        skip();
        for (const std::string_view end : ends) {
          if (at_name(end)) return body;
        }
        body.push_back(parse_statement());
      }
    }
    if (ends.size() > 0) bad("unexpected end of template, expected '" + std::string(*ends.begin()) + "'");
    return body;
  }

  std::unique_ptr<Stmt> statement(StmtKind kind) const {
    auto s = std::make_unique<Stmt>();
    s->kind = kind;
    s->line = now().line;
    return s;
  }

  std::unique_ptr<Stmt> parse_statement() {
    if (!at(TokenKind::kName)) bad("tag name expected, got " + describe());
    const std::string tag = now().text;
    if (tag == "if") return parse_if();
    if (tag == "for") return parse_for();
    if (tag == "set") return parse_set();
    if (tag == "macro") return parse_macro();
    if (tag == "call") return parse_call();
    if (tag == "filter") return parse_filter_block();
    if (tag == "with") return parse_with();
    if (tag == "break" || tag == "continue") return parse_loop_control(tag == "break");
    if (tag == "generation") return parse_group("endgeneration", StmtKind::kGroup);
    if (tag == "autoescape") return parse_group("endautoescape", StmtKind::kScope);
    if (tag == "block") return parse_group("endblock", StmtKind::kScope);
    if (tag == "print") return parse_print();
    if (tag == "include" || tag == "import" || tag == "from" || tag == "extends") return parse_refused(tag);
    bad("unknown tag '" + tag + "'");
  }

  std::unique_ptr<Stmt> parse_if() {
    auto s = statement(StmtKind::kIf);
    do {
      skip();
      ExprPtr test = parse_tuple(false);
      end_block();
      s->branches.emplace_back(std::move(test), parse_body({"elif", "else", "endif"}));
    } while (at_name("elif"));
    if (take_name("else")) {
      end_block();
      s->body = parse_body({"endif"});
    }
    expect_name("endif");
    end_block();
    return s;
  }

  std::unique_ptr<Stmt> parse_for() {
    auto s = statement(StmtKind::kFor);
    skip();
    s->target = parse_target(false);
    expect_name("in");
    s->expr = parse_tuple(false, "recursive");
    if (take_name("if")) s->test = parse_expression();
    s->recursive = take_name("recursive");
    end_block();
    ++loops_;
    s->body = parse_body({"endfor", "else"});
    --loops_;
    if (take_name("else")) {
      end_block();
      s->orelse = parse_body({"endfor"});
    }
    expect_name("endfor");
    end_block();
    return s;
  }

  std::unique_ptr<Stmt> parse_set() {
    auto s = statement(StmtKind::kSet);
    skip();
    s->target = parse_target(true);
    if (take_op("=")) {
      s->expr = parse_tuple(true);
      end_block();
      return s;
    }
    s->kind = StmtKind::kSetBlock;
    if (at_op("|")) s->expr = parse_filters(nullptr);
    end_block();
    s->body = parse_body({"endset"});
    skip();
    end_block();
    return s;
  }

  void parse_signature(Stmt& s) {
    expect_op("(");
    while (!take_op(")")) {
      if (!s.params.empty()) expect_op(",");
      Param param{take_identifier(), nullptr};
      if (take_op("=")) {
        param.fallback = parse_expression();
      } else if (!s.params.empty() && s.params.back().fallback != nullptr) {
        bad("non-default argument follows default argument");
      }
      s.params.push_back(std::move(param));
    }
  }

  std::unique_ptr<Stmt> parse_macro() {
    auto s = statement(StmtKind::kMacro);
    skip();
    s->text = take_identifier();
    parse_signature(*s);
    end_block();
    parse_macro_body(*s, "endmacro");
    return s;
  }
  void parse_macro_body(Stmt& s, std::string_view end) {
    const Uses outer = std::exchange(uses_, Uses{});
    const int loops = std::exchange(loops_, 0);
    s.body = parse_body({end});
    skip();
    end_block();
    s.uses_caller = uses_.caller, s.uses_varargs = uses_.varargs, s.uses_kwargs = uses_.kwargs;
    uses_ = outer, loops_ = loops;
  }

  std::unique_ptr<Stmt> parse_call() {
    auto s = statement(StmtKind::kCall);
    skip();
    if (at_op("(")) parse_signature(*s);
    s->expr = parse_expression();
    if (s->expr->kind != ExprKind::kCall) bad("expected a call");
    end_block();
    s->text = "caller";
    parse_macro_body(*s, "endcall");
    return s;
  }

  std::unique_ptr<Stmt> parse_filter_block() {
    auto s = statement(StmtKind::kFilter);
    skip();
    s->expr = parse_filters(nullptr, true);
    end_block();
    s->body = parse_body({"endfilter"});
    skip();
    end_block();
    return s;
  }

  std::unique_ptr<Stmt> parse_with() {
    auto s = statement(StmtKind::kWith);
    skip();
    while (!at(TokenKind::kBlockEnd)) {
      if (!s->bindings.empty()) expect_op(",");
      ExprPtr target = parse_target(false);
      expect_op("=");
      s->bindings.emplace_back(std::move(target), parse_expression());
    }
    end_block();
    s->body = parse_body({"endwith"});
    skip();
    end_block();
    return s;
  }

  std::unique_ptr<Stmt> parse_loop_control(bool is_break) {
    if (loops_ == 0) bad("'" + now().text + "' outside of a loop");
    auto s = statement(is_break ? StmtKind::kBreak : StmtKind::kContinue);
    skip();
    end_block();
    return s;
  }

  std::unique_ptr<Stmt> parse_group(std::string_view end, StmtKind kind) {
    auto s = statement(kind);
    while (!at(TokenKind::kBlockEnd) && !at(TokenKind::kEnd)) skip();
    end_block();
    s->body = parse_body({end});
    while (!at(TokenKind::kBlockEnd) && !at(TokenKind::kEnd)) skip();
    end_block();
    return s;
  }

  std::unique_ptr<Stmt> parse_print() {
    auto s = statement(StmtKind::kOutput);
    skip();
    s->expr = parse_tuple(true);
    end_block();
    return s;
  }

  std::unique_ptr<Stmt> parse_refused(const std::string& tag) {
    auto s = statement(StmtKind::kRefuse);
    s->text = "'" + tag + "' needs another template, and a chat template stands alone";
    while (!at(TokenKind::kBlockEnd) && !at(TokenKind::kEnd)) skip();
    end_block();
    return s;
  }

  // A name, name.attribute (for namespaces, in set), or a tuple of such.
  ExprPtr parse_target(bool with_namespace) {
    Deeper deeper(*this);
    ExprPtr first = parse_one_target(with_namespace);
    if (!at_op(",")) return first;
    ExprPtr tuple = make(ExprKind::kTuple);
    add_child(*tuple, std::move(first));
    while (take_op(",")) {
      if (!at(TokenKind::kName) && !at_op("(")) break;
      add_child(*tuple, parse_one_target(with_namespace));
    }
    return tuple;
  }
  ExprPtr parse_one_target(bool with_namespace) {
    if (take_op("(")) {
      ExprPtr inner = parse_target(with_namespace);
      expect_op(")");
      return inner;
    }
    ExprPtr e = make(ExprKind::kName);
    e->text = take_identifier();
    static constexpr std::string_view kReserved[] = {"true", "false", "none", "True", "False", "None"};
    for (const std::string_view name : kReserved) {
      if (e->text == name) bad("can't assign to '" + e->text + "'");
    }
    if (!with_namespace || !take_op(".")) return e;
    ExprPtr attribute = make(ExprKind::kAttribute);
    attribute->text = take_identifier();
    add_child(*attribute, std::move(e));
    return attribute;
  }

  int loops_ = 0;  // around the statement, within the same macro
};

}  // namespace

Body parse(std::string_view source) {
  if (source.size() > kSourceBytesMax) fail("template of ", source.size(), " bytes; the limit is ", kSourceBytesMax);
  return Parser(tokenize(source)).run();
}

}  // namespace shoal::jinja
