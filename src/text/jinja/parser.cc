#include "text/jinja/parser.h"

#include <charconv>
#include <initializer_list>

#include "text/jinja/lexer.h"

namespace shoal::jinja {
namespace {

constexpr int kDepthMax = 120;             // of statements and brackets in the source
constexpr size_t kSourceBytesMax = 4 << 20;

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  Body run() {
    Body body = parse_body({});
    if (!at(TokenKind::kEnd)) bad("unexpected '" + now().text + "'");
    return body;
  }

 private:
  // Guards every recursion of the parser.
  struct Deeper {
    explicit Deeper(Parser& p) : parser(p) {
      if (++parser.depth_ > kDepthMax) parser.bad("nested too deeply");
    }
    ~Deeper() { --parser.depth_; }
    Parser& parser;
  };

  // ---- tokens ----
  const Token& now() const { return tokens_[next_]; }
  bool at(TokenKind kind) const { return now().kind == kind; }
  bool at_name(std::string_view name) const { return at(TokenKind::kName) && now().text == name; }
  bool at_op(std::string_view op) const { return at(TokenKind::kOperator) && now().text == op; }
  void skip() {
    if (!at(TokenKind::kEnd)) ++next_;
  }
  bool take_op(std::string_view op) { return at_op(op) && (skip(), true); }
  bool take_name(std::string_view name) { return at_name(name) && (skip(), true); }
  [[noreturn]] void bad(const std::string& why) const { fail("line ", now().line, ": ", why); }
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

  ExprPtr make(ExprKind kind) const {
    auto e = std::make_unique<Expr>();
    e->kind = kind;
    e->line = now().line;
    return e;
  }
  void add_child(Expr& e, ExprPtr child) {
    if (child != nullptr) e.depth = std::max(e.depth, child->depth + 1);
    if (e.depth > kDepthMax) bad("expression nested too deeply");
    e.children.push_back(std::move(child));
  }
  ExprPtr constant(Value v) const {
    auto e = make(ExprKind::kConst);
    e->constant = std::move(v);
    return e;
  }

  // ---- statements ----
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

  // What a macro's body names decides whether it takes a caller and surplus arguments.
  struct Uses {
    bool caller = false, varargs = false, kwargs = false;
  };

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

  // ---- expressions ----
  bool at_tuple_end(std::string_view extra_end) const {
    return at(TokenKind::kVariableEnd) || at(TokenKind::kBlockEnd) || at_op(")") ||
           (!extra_end.empty() && at_name(extra_end)) || at(TokenKind::kEnd);
  }
  // expr or expr, expr, ...; with_condition false: "if" ends it (for ... in x if y).
  ExprPtr parse_tuple(bool with_condition, std::string_view extra_end = {}, bool in_brackets = false) {
    const auto one = [&] { return with_condition ? parse_expression() : parse_or(); };
    ExprPtr tuple = make(ExprKind::kTuple);
    bool is_tuple = false;
    while (true) {
      if (!tuple->children.empty()) {
        if (!take_op(",")) break;
        is_tuple = true;
      }
      if (at_tuple_end(extra_end)) break;
      add_child(*tuple, one());
    }
    if (is_tuple) return tuple;
    if (!tuple->children.empty()) return std::move(tuple->children[0]);
    if (!in_brackets) bad("expected an expression, got " + describe());
    return tuple;
  }

  ExprPtr parse_expression() {
    Deeper deeper(*this);
    ExprPtr e = parse_or();
    while (take_name("if")) {
      ExprPtr condition = make(ExprKind::kCondition);
      ExprPtr test = parse_or();
      ExprPtr otherwise;
      if (take_name("else")) otherwise = parse_expression();
      add_child(*condition, std::move(e));
      add_child(*condition, std::move(test));
      add_child(*condition, std::move(otherwise));
      e = std::move(condition);
    }
    return e;
  }

  // A flat node over operands joined by what `take` accepts.
  template <typename Operand, typename Take>
  ExprPtr chain(ExprKind kind, const Operand& operand, const Take& take) {
    ExprPtr first = operand();
    ExprPtr node;
    while (take(node)) {
      if (node->children.empty()) add_child(*node, std::move(first));
      add_child(*node, operand());
    }
    return node != nullptr ? std::move(node) : std::move(first);
  }
  ExprPtr parse_or() {
    return chain(ExprKind::kOr, [&] { return parse_and(); }, [&](ExprPtr& node) {
      if (!take_name("or")) return false;
      if (node == nullptr) node = make(ExprKind::kOr);
      return true;
    });
  }
  ExprPtr parse_and() {
    return chain(ExprKind::kAnd, [&] { return parse_not(); }, [&](ExprPtr& node) {
      if (!take_name("and")) return false;
      if (node == nullptr) node = make(ExprKind::kAnd);
      return true;
    });
  }
  ExprPtr parse_not() {
    if (!at_name("not")) return parse_compare();
    Deeper deeper(*this);
    ExprPtr e = make(ExprKind::kNot);
    skip();
    add_child(*e, parse_not());
    return e;
  }

  struct OpName {
    std::string_view name;
    Op op;
  };
  // Takes an operator of `table` into node->ops, creating the node.
  bool take_binary(ExprPtr& node, ExprKind kind, std::initializer_list<OpName> table) {
    for (const OpName& entry : table) {
      if (!take_op(entry.name)) continue;
      if (node == nullptr) node = make(kind);
      node->ops.push_back(entry.op);
      return true;
    }
    return false;
  }
  ExprPtr parse_compare() {
    return chain(ExprKind::kCompare, [&] { return parse_sum(); }, [&](ExprPtr& node) {
      if (take_binary(node, ExprKind::kCompare, {{"==", Op::kEq}, {"!=", Op::kNe}, {"<", Op::kLt}, {"<=", Op::kLe},
                                                 {">", Op::kGt}, {">=", Op::kGe}})) {
        return true;
      }
      const bool negated = at_name("not") && tokens_[next_ + 1].kind == TokenKind::kName && tokens_[next_ + 1].text == "in";
      if (!negated && !at_name("in")) return false;
      skip();
      if (negated) skip();
      if (node == nullptr) node = make(ExprKind::kCompare);
      node->ops.push_back(negated ? Op::kNotIn : Op::kIn);
      return true;
    });
  }
  ExprPtr parse_sum() {
    return chain(ExprKind::kArithmetic, [&] { return parse_concat(); }, [&](ExprPtr& node) {
      return take_binary(node, ExprKind::kArithmetic, {{"+", Op::kAdd}, {"-", Op::kSubtract}});
    });
  }
  ExprPtr parse_concat() {
    return chain(ExprKind::kConcat, [&] { return parse_product(); }, [&](ExprPtr& node) {
      if (!take_op("~")) return false;
      if (node == nullptr) node = make(ExprKind::kConcat);
      return true;
    });
  }
  ExprPtr parse_product() {
    return chain(ExprKind::kArithmetic, [&] { return parse_power(); }, [&](ExprPtr& node) {
      return take_binary(node, ExprKind::kArithmetic, {{"*", Op::kMultiply}, {"//", Op::kFloorDivide}, {"/", Op::kDivide},
                                                       {"%", Op::kModulo}});
    });
  }
  ExprPtr parse_power() {
    return chain(ExprKind::kArithmetic, [&] { return parse_unary(true); }, [&](ExprPtr& node) {
      return take_binary(node, ExprKind::kArithmetic, {{"**", Op::kPower}});
    });
  }

  ExprPtr parse_unary(bool with_filters) {
    Deeper deeper(*this);
    ExprPtr e;
    if (at_op("-") || at_op("+")) {
      e = make(at_op("-") ? ExprKind::kNegate : ExprKind::kPlus);
      skip();
      add_child(*e, parse_unary(false));
    } else {
      e = parse_primary();
    }
    e = parse_postfix(std::move(e));
    return with_filters ? parse_filters(std::move(e)) : std::move(e);
  }

  ExprPtr parse_primary() {
    switch (now().kind) {
      case TokenKind::kName: return parse_name();
      case TokenKind::kString: {
        std::string text;
        ExprPtr e = make(ExprKind::kConst);
        for (; at(TokenKind::kString); skip()) text += now().text;
        e->constant = Value::string(text);
        return e;
      }
      case TokenKind::kInteger:
      case TokenKind::kFloat: return parse_number();
      default: break;
    }
    if (take_op("(")) {
      ExprPtr e = parse_tuple(true, {}, true);
      expect_op(")");
      return e;
    }
    if (at_op("[")) return parse_list();
    if (at_op("{")) return parse_dict();
    bad("unexpected " + describe());
  }

  ExprPtr parse_name() {
    const std::string& name = now().text;
    ExprPtr e;
    if (name == "true" || name == "True") {
      e = constant(Value::boolean(true));
    } else if (name == "false" || name == "False") {
      e = constant(Value::boolean(false));
    } else if (name == "none" || name == "None") {
      e = constant(Value::none());
    } else {
      e = make(ExprKind::kName);
      e->text = name;
      uses_.caller |= name == "caller", uses_.varargs |= name == "varargs", uses_.kwargs |= name == "kwargs";
    }
    skip();
    return e;
  }

  ExprPtr parse_number() {
    const std::string& text = now().text;
    ExprPtr e;
    if (at(TokenKind::kFloat)) {
      double value = 0;
      if (std::from_chars(text.data(), text.data() + text.size(), value).ec != std::errc()) bad("number out of range");
      e = constant(Value::real(value));
    } else {
      const bool radix = text.size() > 1 && text[0] == '0' && (text[1] | 0x20) >= 'a';
      const int base = !radix ? 10 : (text[1] | 0x20) == 'x' ? 16 : (text[1] | 0x20) == 'o' ? 8 : 2;
      int64_t value = 0;
      const char* const begin = text.data() + (radix ? 2 : 0);
      const char* const end = text.data() + text.size();
      const auto parsed = std::from_chars(begin, end, value, base);
      if (parsed.ec != std::errc() || parsed.ptr != end) bad("integer '" + text + "' is malformed or does not fit 64 bits");
      e = constant(Value::integer(value));
    }
    skip();
    return e;
  }

  ExprPtr parse_list() {
    ExprPtr e = make(ExprKind::kList);
    expect_op("[");
    while (!take_op("]")) {
      if (!e->children.empty()) {
        expect_op(",");
        if (take_op("]")) break;
      }
      add_child(*e, parse_expression());
    }
    return e;
  }
  ExprPtr parse_dict() {
    ExprPtr e = make(ExprKind::kDict);
    expect_op("{");
    while (!take_op("}")) {
      if (!e->children.empty()) {
        expect_op(",");
        if (take_op("}")) break;
      }
      add_child(*e, parse_expression());
      expect_op(":");
      add_child(*e, parse_expression());
    }
    return e;
  }

  ExprPtr parse_postfix(ExprPtr e) {
    while (true) {
      if (take_op(".")) {
        const bool index = at(TokenKind::kInteger);
        ExprPtr outer = make(index ? ExprKind::kItem : ExprKind::kAttribute);
        add_child(*outer, std::move(e));
        if (index) {
          add_child(*outer, parse_number());
        } else {
          outer->text = take_identifier();
        }
        e = std::move(outer);
      } else if (at_op("[")) {
        e = parse_subscript(std::move(e));
      } else if (at_op("(")) {
        ExprPtr call = make(ExprKind::kCall);
        add_child(*call, std::move(e));
        parse_args(*call);
        e = std::move(call);
      } else {
        return e;
      }
    }
  }

  ExprPtr parse_subscript(ExprPtr object) {
    ExprPtr e = make(ExprKind::kItem);
    expect_op("[");
    add_child(*e, std::move(object));
    ExprPtr first = parse_index();
    if (at_op(",")) {
      ExprPtr tuple = make(ExprKind::kTuple);
      add_child(*tuple, std::move(first));
      while (take_op(",")) {
        if (at_op("]")) break;
        add_child(*tuple, parse_index());
      }
      first = std::move(tuple);
    }
    expect_op("]");
    add_child(*e, std::move(first));
    return e;
  }
  ExprPtr parse_index() {
    ExprPtr start;
    if (!at_op(":")) {
      start = parse_expression();
      if (!at_op(":")) return start;
    }
    ExprPtr slice = make(ExprKind::kSlice);
    add_child(*slice, std::move(start));
    for (int part = 0; part < 2; ++part) {
      const bool has = take_op(":");
      const bool empty = !has || at_op("]") || at_op(",") || at_op(":");
      add_child(*slice, empty ? nullptr : parse_expression());
    }
    return slice;
  }

  void parse_args(Expr& e) {
    expect_op("(");
    CallArgs& args = e.args;
    const auto keep = [&](ExprPtr value) {
      e.depth = std::max(e.depth, value->depth + 1);
      if (e.depth > kDepthMax) bad("expression nested too deeply");
      return value;
    };
    bool first = true;
    while (!take_op(")")) {
      if (!std::exchange(first, false)) {
        expect_op(",");
        if (take_op(")")) break;
      }
      if (take_op("**")) {
        if (args.star_star) bad("two ** arguments");
        args.star_star = keep(parse_expression());
      } else if (take_op("*")) {
        if (args.star || args.star_star) bad("misplaced * argument");
        args.star = keep(parse_expression());
      } else if (at(TokenKind::kName) && tokens_[next_ + 1].kind == TokenKind::kOperator && tokens_[next_ + 1].text == "=") {
        std::string name = take_identifier();
        skip();
        args.named.emplace_back(std::move(name), keep(parse_expression()));
      } else {
        if (!args.named.empty() || args.star || args.star_star) bad("positional argument follows keyword argument");
        args.positional.push_back(keep(parse_expression()));
      }
    }
  }

  // The filters, tests and calls after an operand; `begin` true: a filter name stands first (filter block).
  ExprPtr parse_filters(ExprPtr e, bool begin = false) {
    while (true) {
      if (begin || take_op("|")) {
        begin = false;
        ExprPtr filter = make(ExprKind::kFilter);
        filter->text = take_dotted_name();
        add_child(*filter, std::move(e));
        if (at_op("(")) parse_args(*filter);
        e = std::move(filter);
      } else if (at_name("is") && e != nullptr) {
        e = parse_test(std::move(e));
      } else if (at_op("(") && e != nullptr) {
        ExprPtr call = make(ExprKind::kCall);
        add_child(*call, std::move(e));
        parse_args(*call);
        e = std::move(call);
      } else {
        return e;
      }
    }
  }
  std::string take_dotted_name() {
    std::string name = take_identifier();
    while (take_op(".")) name += "." + take_identifier();
    return name;
  }

  ExprPtr parse_test(ExprPtr e) {
    skip();
    const bool negated = take_name("not");
    ExprPtr test = make(ExprKind::kTest);
    test->text = take_dotted_name();
    add_child(*test, std::move(e));
    const bool operand = at(TokenKind::kString) || at(TokenKind::kInteger) || at(TokenKind::kFloat) || at_op("[") || at_op("{") ||
                         (at(TokenKind::kName) && !at_name("else") && !at_name("or") && !at_name("and"));
    if (at_op("(")) {
      parse_args(*test);
    } else if (operand) {
      if (at_name("is")) bad("you cannot chain multiple tests with 'is'");
      ExprPtr argument = parse_postfix(parse_primary());
      test->depth = std::max(test->depth, argument->depth + 1);
      test->args.positional.push_back(std::move(argument));
    }
    if (!negated) return test;
    ExprPtr e_not = make(ExprKind::kNot);
    add_child(*e_not, std::move(test));
    return e_not;
  }

  std::vector<Token> tokens_;
  size_t next_ = 0;
  int depth_ = 0;
  int loops_ = 0;
  Uses uses_;
};

}  // namespace

Body parse(std::string_view source) {
  if (source.size() > kSourceBytesMax) fail("template of ", source.size(), " bytes; the limit is ", kSourceBytesMax);
  return Parser(tokenize(source)).run();
}

}  // namespace shoal::jinja
