#include "text/grammar/grammar_matcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <set>

#include "base/rng.h"
#include "nlohmann/json.hpp"
#include "text/grammar/fuzz_targets.h"
#include "text/grammar/gbnf_builder.h"
#include "text/grammar/lookalikes.h"
#include "text/tokenizer/pcre_regex.h"

namespace shoal {
namespace {

using ::testing::HasSubstr;

// All single bytes, the given words, and control tokens behind them.
std::shared_ptr<const TokenVocabulary> vocabulary(const std::vector<std::string>& words = {}, const std::vector<std::string>& controls = {}) {
  std::vector<TokenVocabulary::Token> tokens;
  TokenId id = 0;
  for (int b = 0; b < 256; ++b) tokens.push_back({id++, std::string(1, static_cast<char>(b)), false});
  for (const std::string& word : words) tokens.push_back({id++, word, false});
  for (const std::string& control : controls) tokens.push_back({id++, control, true});
  return std::make_shared<const TokenVocabulary>(std::move(tokens), static_cast<uint32_t>(id));
}

std::unique_ptr<GrammarMatcher> matcher(const std::string& gbnf, std::shared_ptr<const TokenVocabulary> vocabulary, std::vector<std::string> triggers = {}) {
  auto made = GrammarMatcher::create({gbnf, std::move(triggers)}, std::move(vocabulary));
  EXPECT_TRUE(made.ok()) << made.status() << "\n" << gbnf;
  return made.ok() ? *std::move(made) : nullptr;
}

// Whether the grammar matches a text as a whole, byte by byte.
bool matches(GrammarMatcher& m, std::string_view text) {
  auto at = m.start();
  for (const char c : text) {
    if (!m.advance(at, static_cast<uint8_t>(c)).ok()) return false;
  }
  const auto allowed = m.allowed(at);
  return allowed.ok() && allowed->may_end;
}
bool matches(const std::string& gbnf, std::string_view text) {
  const auto m = matcher(gbnf, vocabulary());
  return m && matches(*m, text);
}

std::string error_of(const std::string& gbnf) {
  const auto made = GrammarMatcher::create({gbnf, {}}, vocabulary({"<word>"}, {"<end>"}));
  return made.ok() ? "none" : std::string(made.status().message());
}

// ---- an oracle that knows nothing of automata: what is left to match, as lists of expressions ---------------------------

class Oracle {
 public:
  explicit Oracle(const std::string& gbnf) : grammar_(*grammar::parse_gbnf(gbnf)) {
    expand({}, {{grammar_.rules[grammar_.root].body, 0}}, now_);
  }
  struct Item {
    grammar::ExprId expr;
    uint32_t done;  // bytes of a literal, repetitions
    friend auto operator<=>(const Item&, const Item&) = default;
  };
  using Rest = std::vector<Item>;                              // the next one is the last
  using Rests = std::set<std::pair<std::string, Rest>>;        // with the bytes of an unfinished character

  bool alive() const { return !now_.empty(); }
  bool may_end() const { return now_.contains({"", {}}); }
  void take(uint8_t byte) {
    Rests next;
    for (const auto& [partial, rest] : now_) {
      if (!rest.empty()) take(partial + static_cast<char>(byte), rest, next);
    }
    now_ = std::move(next);
  }

 private:
  void take(const std::string& bytes, Rest rest, Rests& out) {
    const Item item = rest.back();
    rest.pop_back();
    const grammar::Expr& e = grammar_.exprs[item.expr];
    if (e.kind == grammar::Expr::Kind::kLiteral) {
      const std::string& text = grammar_.texts[e.value];
      if (text[item.done] != bytes.back()) return;
      if (item.done + 1 < text.size()) rest.push_back({item.expr, item.done + 1});
      return expand("", rest, out);
    }
    if (e.kind != grammar::Expr::Kind::kSet) return;
    const auto& set = grammar_.sets[e.value];
    const auto sequence = unicode::sequence_at(bytes, 0);
    if (sequence.complete && sequence.bytes == bytes.size()) {
      size_t n = 0;
      if (set.contains(unicode::decode(bytes, 0, &n))) expand("", rest, out);
    } else if (sequence.truncated && can_become(bytes, set)) {
      rest.push_back(item);
      out.insert({bytes, rest});
    }
  }
  static bool can_become(const std::string& bytes, const grammar::CodePointSet& set) {
    for (const auto& range : set.ranges()) {
      const std::string low = unicode::encode(range.first), high = unicode::encode(range.last);
      for (char32_t c = range.first; c <= range.last; c += std::max<char32_t>(1, (range.last - range.first) / 64)) {
        if (unicode::encode(c).starts_with(bytes)) return true;
      }
      if (high.starts_with(bytes) || (low < bytes && bytes < high)) return true;
    }
    return false;
  }
  void expand(const std::string& partial, Rest rest, Rests& out) {
    using Kind = grammar::Expr::Kind;
    if (rest.empty()) {
      out.insert({partial, rest});
      return;
    }
    const Item item = rest.back();
    const grammar::Expr& e = grammar_.exprs[item.expr];
    const bool terminal = e.kind == Kind::kSet || (e.kind == Kind::kLiteral && !grammar_.texts[e.value].empty());
    if (terminal || e.kind == Kind::kTokenId || e.kind == Kind::kTokenText) {
      out.insert({partial, rest});
      return;
    }
    rest.pop_back();
    if (e.kind == Kind::kLiteral) return expand(partial, rest, out);
    if (e.kind == Kind::kRule) {
      rest.push_back({grammar_.rules[e.value].body, 0});
      return expand(partial, rest, out);
    }
    if (e.kind == Kind::kAlternatives) {
      for (const auto child : e.children) {
        Rest with = rest;
        with.push_back({child, 0});
        expand(partial, with, out);
      }
      return;
    }
    if (e.kind == Kind::kSequence) {
      for (size_t i = e.children.size(); i-- > 0;) rest.push_back({e.children[i], 0});
      return expand(partial, rest, out);
    }
    const uint32_t done = e.most == grammar::kNoLimit ? std::min(item.done, e.least) : item.done;  // one form for all repetitions beyond the least
    if (done >= e.least) expand(partial, rest, out);
    if (done < e.most) {
      rest.push_back({item.expr, done + 1});
      rest.push_back({e.children[0], 0});
      expand(partial, rest, out);
    }
  }

  grammar::ParsedGrammar grammar_;
  Rests now_;
};

// Grammars without left recursion and without repetitions of what may be empty, which the oracle would not survive.
class RandomGrammar {
 public:
  explicit RandomGrammar(Rng& rng) : rng_(rng), rules_(1 + rng.below(4)) {}
  std::string text() {
    std::string out;
    for (uint64_t r = 0; r < rules_; ++r) {
      at_rule_ = r;
      out += (r == 0 ? "root" : "r" + std::to_string(r)) + " ::= " + solid(0) + " | " + terminal() + "\n";
    }
    return out;
  }

 private:
  std::string terminal() {
    static const char* kTerminals[] = {"\"a\"", "\"b\"", "\"ab\"", "\"ba\"", "[ab]", "[^a]", "\"\\\"\"", "[a-c\\u00e9]", "\"\\u00e9\"", ".", "\"{\"", "[0-9]", "\"\\U0001F642\""};
    return kTerminals[rng_.below(std::size(kTerminals))];
  }
  // Takes at least one byte before any rule is called.
  std::string solid(int depth) {
    switch (depth > 3 ? 0 : rng_.below(7)) {
      case 1: return terminal() + " " + any(depth + 1);
      case 2: return "(" + solid(depth + 1) + " | " + solid(depth + 1) + ")";
      case 3: return "(" + solid(depth + 1) + ")" + (rng_.below(2) == 0 ? "+" : "{1,3}");
      case 4: return "(" + solid(depth + 1) + "){2}";
      case 5: return solid(depth + 1) + " " + any(depth + 1);
      case 6: return at_rule_ + 1 < rules_ ? "r" + std::to_string(at_rule_ + 1 + rng_.below(rules_ - at_rule_ - 1)) : terminal();
      default: return terminal();
    }
  }
  std::string any(int depth) {
    switch (depth > 3 ? 0 : rng_.below(5)) {
      case 1: return rng_.below(rules_) == 0 ? "root" : "r" + std::to_string(rng_.below(rules_ - 0) == 0 ? 0 : rng_.below(rules_));
      case 2: return "(" + solid(depth + 1) + ")*";
      case 3: return "(" + solid(depth + 1) + ")?";
      default: return solid(depth + 1);
    }
  }
  Rng& rng_;
  uint64_t rules_, at_rule_ = 0;
};

const std::vector<std::string> kWords = {"aa", "ab", "ba", "aab", "b\"", "\"a", "a{", "}}", "\xc3\xa9", "a\xc3", "\xa9" "b", "\xf0\x9f", "\x99\x82", "09", "1a", "abab", "ccc", "{a", "b0"};

TEST(GrammarMatcher, MasksHoldExactlyTheTokensWhoseBytesFollowTheGrammar) {
  const auto vocab = vocabulary(kWords, {"<c>"});
  uint64_t checked = 0, grammars = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    Rng rng(seed);
    std::string gbnf = RandomGrammar(rng).text();
    for (size_t i; (i = gbnf.find("r0")) != std::string::npos;) gbnf.replace(i, 2, "root");
    const auto made = GrammarMatcher::create({gbnf, {}}, vocab);
    ASSERT_TRUE(made.ok()) << made.status() << "\n" << gbnf;
    ++grammars;
    GrammarMatcher& m = **made;
    auto at = m.start();
    Oracle oracle(gbnf);
    for (int step = 0; step < 6; ++step) {
      const auto allowed = m.allowed(at);
      ASSERT_TRUE(allowed.ok());
      ASSERT_EQ(allowed->may_end, oracle.may_end()) << gbnf;
      std::vector<TokenId> fitting;
      for (TokenId id = 0; id < static_cast<TokenId>(vocab->size()); ++id) {
        Oracle next = oracle;
        const auto bytes = vocab->bytes(id);
        for (const char c : bytes) {
          if (next.alive()) next.take(static_cast<uint8_t>(c));
        }
        const bool fits = next.alive() && !vocab->is_control(id);
        ASSERT_EQ(allowed->mask->holds(id), fits) << "token '" << bytes << "' after " << step << " tokens, seed " << seed << "\n" << gbnf;
        auto moved = at;
        ASSERT_EQ(m.advance(moved, id).ok(), fits);
        if (fits) fitting.push_back(id);
        ++checked;
      }
      ASSERT_EQ(allowed->mask->count, fitting.size());
      ASSERT_EQ(allowed->complete, allowed->may_end && fitting.empty());
      if (fitting.empty()) break;
      const TokenId chosen = fitting[rng.below(fitting.size())];
      ASSERT_TRUE(m.advance(at, chosen).ok());
      for (const char c : vocab->bytes(chosen)) oracle.take(static_cast<uint8_t>(c));
    }
  }
  EXPECT_GT(checked, 100'000u);
  EXPECT_EQ(grammars, 400u);
}

TEST(GrammarMatcher, MasksNearABoundDifferFromThoseFarFromIt) {
  const auto vocab = vocabulary(kWords);
  const char* grammars[] = {
      "root ::= \"\\\"\" ([ab\\u00e9] | \"{\" [a0]){0,19} \"\\\"\" \"}}\"?",
      "root ::= (c \"0\"?){3,17} \"b\"\nc ::= [ab]+ | \"{\" [ab]{0,3} \"}\"",
      "root ::= (e \"a\"){2,14} \"\\\"\"\ne ::= \"b\"?",
      "root ::= ([ab]{1,9} [09]){4} | [a-c]{21}",
  };
  Rng rng(11);
  for (const char* gbnf : grammars) {
    for (int walk = 0; walk < 12; ++walk) {
      const auto m = matcher(gbnf, vocab);
      auto at = m->start();
      Oracle oracle(gbnf);
      for (int step = 0; step < 30; ++step) {
        const auto allowed = m->allowed(at);
        ASSERT_TRUE(allowed.ok());
        ASSERT_EQ(allowed->may_end, oracle.may_end());
        std::vector<TokenId> fitting;
        for (TokenId id = 0; id < static_cast<TokenId>(vocab->size()); ++id) {
          Oracle next = oracle;
          for (const char c : vocab->bytes(id)) {
            if (next.alive()) next.take(static_cast<uint8_t>(c));
          }
          ASSERT_EQ(allowed->mask->holds(id), next.alive()) << gbnf << ": '" << vocab->bytes(id) << "' after " << step << " tokens";
          if (next.alive()) fitting.push_back(id);
        }
        if (fitting.empty()) break;
        const TokenId chosen = fitting[rng.below(fitting.size())];
        ASSERT_TRUE(m->advance(at, chosen).ok());
        for (const char c : vocab->bytes(chosen)) oracle.take(static_cast<uint8_t>(c));
      }
    }
  }
}

TEST(Lookalikes, OnlyTheEndOfACountIsTold) {
  const auto parsed = grammar::parse_gbnf("root ::= \"<\" [a-z]{0,500} \">\"");
  const auto automaton = grammar::compile(*parsed, [](std::string_view) { return std::nullopt; }, 0);
  ASSERT_TRUE(automaton.ok());
  for (const size_t bytes : {1u, 4u, 30u}) {
    const auto of = grammar::lookalikes(*automaton, bytes);
    const std::set<grammar::NodeIndex> distinct(of.begin(), of.end());
    EXPECT_GE(distinct.size(), bytes + 2);
    EXPECT_LE(distinct.size(), bytes + 8);
  }
}

TEST(Gbnf, TheDialectIsThatOfLlamaCpp) {
  EXPECT_TRUE(matches("# comment\nroot ::= a-rule b_2 # more\na-rule ::= \"x\" |\n  \"y\"\nb_2 ::= (\n \"1\" # in group\n | \"2\"\n)\n", "y2"));
  EXPECT_TRUE(matches("root ::= \"a\"\n  | \"b\"\n", "b"));
  EXPECT_TRUE(matches("root ::= [^a-c\\]] [\\x41] \"\\u00e9\" [\\U0001F642-\\U0001F650] [a-]", "zA\xc3\xa9\xf0\x9f\x99\x83-"));
  EXPECT_FALSE(matches("root ::= [^a]", "a"));
  EXPECT_TRUE(matches("root ::= [^a]", "\xc3\xa9"));
  EXPECT_FALSE(matches("root ::= .", "\xed\xa0\x80")) << "surrogates are no text";
  EXPECT_TRUE(matches("root ::= \"a\"{2} \"b\"{1,} \"c\"{0,2} \"d\"{,1}", "aabbbcd"));
  EXPECT_FALSE(matches("root ::= \"a\"{2}", "a"));
  EXPECT_FALSE(matches("root ::= \"a\"{2}", "aaa"));
  EXPECT_TRUE(matches("root ::= \"[\" (root (\",\" root)*)? \"]\"", "[[],[[]]]"));
  EXPECT_TRUE(matches("root ::= \"\" | \"a\"", ""));
}

TEST(Gbnf, FaultsAreNamedWithTheirLine) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "no rule 'root'"},
      {"x ::= \"a\"", "no rule 'root'"},
      {"root ::= missing", "no rule 'missing'"},
      {"root ::= \"a\"\nroot ::= \"b\"", "line 2: the rule 'root' is defined twice"},
      {"root ::= \"a", "'\"' is expected"},
      {"root ::= [a", "']' is expected"},
      {"root ::= [b-a]", "out of order"},
      {"root ::= (\"a\"", "')' is expected"},
      {"root ::= \"a\" )", "the end of the line"},
      {"root ::= \"\\q\"", "unknown escape"},
      {"root ::= \"\\xZZ\"", "hexadecimal"},
      {"root ::= \"\\uD800\"", "no character"},
      {"root ::= \"a\"{3,2}", "out of order"},
      {"root ::= \"a\"{9999999}", "more than 100000"},
      {"root = \"a\"", "'::=' is expected"},
      {"root ::= *", "unexpected '*'"},
      {"root ::= \"a\"*************", "too many repetitions"},
      {"root ::= <[99999]>", "outside the model's vocabulary"},
      {"root ::= <nothing>", "no token <nothing>"},
      {"root ::= <[x]>", "<[id]>"},
      {"root ::= root \"a\" | \"b\"", "left-recursive"},
      {"root ::= x\nx ::= y \"a\"\ny ::= \"\" x", "left-recursive"},
      {"root ::= e root \"a\" | \"b\"\ne ::= \"c\"?", "left-recursive"},
      {"root ::= \"a\" root", "can never end"},
      {"root ::= \"\"", "nothing but the empty text"},
      {"root ::= \"\xff\"", "UTF-8"},
  };
  for (const auto& [gbnf, expected] : cases) {
    EXPECT_THAT(error_of(gbnf), HasSubstr(expected)) << gbnf;
  }
  std::string nested = "root ::= ";
  for (int i = 0; i < 1000; ++i) nested += "(";
  EXPECT_THAT(error_of(nested), HasSubstr("nested too deeply"));
  EXPECT_THAT(error_of("root ::= ([a-z] \"x\"){90000} ([b-z] \"y\"){90000} ([c-z] \"z\"){90000}"), HasSubstr("too large"));
  EXPECT_THAT(error_of("root ::= ((\"a\"?){9000} \"b\"?){9}"), HasSubstr("too large"));
}

TEST(GrammarMatcher, ControlTokensComeOnlyWhereATerminalNamesThem) {
  const auto vocab = vocabulary({"<think>"}, {"<end>", "<tool>"});
  const TokenId think = 256, end = 257, tool = 258;
  const auto m = matcher("root ::= <tool> .* <[257]> | <think> \"x\"", vocab);
  auto at = m->start();
  auto allowed = *m->allowed(at);
  EXPECT_EQ(allowed.mask->count, 2u);
  EXPECT_TRUE(allowed.mask->holds(tool) && allowed.mask->holds(think));
  ASSERT_TRUE(m->advance(at, tool).ok());
  allowed = *m->allowed(at);
  EXPECT_TRUE(allowed.mask->holds('<') && allowed.mask->holds(think) && allowed.mask->holds(end));
  EXPECT_FALSE(allowed.mask->holds(tool));
  EXPECT_FALSE(allowed.may_end);
  ASSERT_TRUE(m->advance(at, think).ok());
  ASSERT_TRUE(m->advance(at, end).ok());
  EXPECT_TRUE(m->allowed(at)->complete);
}

TEST(GrammarMatcher, TriggersOpenTheGrammarEvenWithinAToken) {
  const auto vocab = vocabulary({"ink>", "k>42", "k>no", "</think>"}, {"<eos>"});
  const auto m = matcher("root ::= [0-9]+", vocab, {"</think>", "GO"});
  auto at = m->start();
  EXPECT_EQ(m->allowed(at)->mask, nullptr) << "nothing can go wrong yet";
  EXPECT_TRUE(m->allowed(at)->may_end);
  for (const char c : std::string("so </<</thin")) ASSERT_TRUE(m->advance(at, static_cast<uint8_t>(c)).ok());
  EXPECT_TRUE(at.free);
  const auto allowed = *m->allowed(at);
  ASSERT_NE(allowed.mask, nullptr);
  EXPECT_TRUE(allowed.mask->holds(257)) << "k>42";
  EXPECT_FALSE(allowed.mask->holds(258)) << "k>no ends a trigger and breaks the grammar";
  EXPECT_TRUE(allowed.mask->holds('x') && allowed.mask->holds(260)) << "everything else is free, control tokens too";
  ASSERT_TRUE(m->advance(at, 257).ok());
  EXPECT_FALSE(at.free);
  EXPECT_TRUE(m->allowed(at)->may_end);
  EXPECT_EQ(m->allowed(at)->mask->count, 10u);
  auto other = m->start();
  ASSERT_TRUE(m->advance(other, 'G').ok());
  ASSERT_TRUE(m->advance(other, 'O').ok());
  EXPECT_FALSE(m->allowed(other)->may_end);
  EXPECT_FALSE(GrammarMatcher::create({"root ::= \"a\"", {""}}, vocab).ok());
  EXPECT_FALSE(GrammarMatcher::create({"root ::= \"a\"", {std::string(5000, 'x')}}, vocab).ok());
}

TEST(GrammarMatcher, OverlappingTriggersAreFoundAtTheFirstThatIsComplete) {
  const auto m = matcher("root ::= \"!\"", vocabulary(), {"aab", "ab", "abc", "caabx"});
  for (const auto& [text, after] : {std::pair{"aaab", true}, {"caab", true}, {"xab", true}, {"aacb", false}, {"ba", false}}) {
    auto at = m->start();
    for (const char c : std::string(text)) ASSERT_TRUE(m->advance(at, static_cast<uint8_t>(c)).ok());
    EXPECT_EQ(!at.free, after) << text;
  }
}

TEST(GrammarMatcher, AmbiguousGrammarsEndInAnErrorInsteadOfEndlessWork) {
  const auto m = matcher("root ::= x+\nx ::= \"a\" y \"b\" | \"a\" z \"c\" | \"a\"\ny ::= \"a\" x | x x x\nz ::= x y | x x z | \"a\"", vocabulary({std::string(40, 'a')}));
  auto at = m->start();
  Status status = OkStatus();
  for (int i = 0; i < 3000 && status.ok(); ++i) {
    status = m->advance(at, 'a');
    if (status.ok()) status = m->allowed(at).status();
  }
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << status;
  m->trim();
  EXPECT_GT(m->generation(), at.generation);
  auto again = m->start();
  EXPECT_TRUE(m->advance(again, 'a').ok());
}

TEST(GrammarMatcher, RecursionWrittenAsAListNeedsNoDeeperStack) {
  const auto m = matcher("root ::= item root | item\nitem ::= [a-z]+ \";\"", vocabulary());
  auto at = m->start();
  for (const char c : std::string("ab;c;")) ASSERT_TRUE(m->advance(at, static_cast<uint8_t>(c)).ok());
  const uint32_t state = at.state;
  for (int i = 0; i < 1000; ++i) {
    ASSERT_TRUE(m->advance(at, 'x').ok());
    ASSERT_TRUE(m->advance(at, ';').ok());
  }
  EXPECT_EQ(at.state, state);
}

TEST(GrammarCorpus, EveryFileHoldsTheProperties) {
  const auto vocab = fuzz::grammar_vocabulary();
  const std::pair<const char*, void (*)(const std::shared_ptr<const TokenVocabulary>&, std::string_view)> targets[] = {
      {"gbnf", fuzz::gbnf}, {"json_schema", fuzz::json_schema}, {"regex", fuzz::regex}};
  for (const auto& [name, run] : targets) {
    int files = 0;
    for (const auto& entry : std::filesystem::directory_iterator(std::string(SHOAL_SOURCE_DIR "/tests/corpus/") + name)) {
      const auto bytes = read_file(entry.path().string(), 1 << 20);
      ASSERT_TRUE(bytes.ok());
      run(vocab, *bytes);
      ++files;
    }
    EXPECT_GT(files, 3) << name;
  }
}

// ---- regular expressions against PCRE2 --------------------------------------------------------------------------------

// A text of the grammar by random steps over bytes; nullopt if it grows long.
std::optional<std::string> random_text(GrammarMatcher& m, Rng& rng, size_t bytes_max = 300) {
  auto at = m.start();
  std::string text;
  while (text.size() < bytes_max) {
    const auto allowed = m.allowed(at);
    if (!allowed.ok()) return std::nullopt;
    if (allowed->complete || (allowed->may_end && rng.below(4) == 0)) return text;
    std::vector<TokenId> fitting;
    for (TokenId id = 0; id < 256; ++id) {
      if (allowed->mask->holds(id)) fitting.push_back(id);
    }
    const TokenId id = fitting[rng.below(fitting.size())];
    EXPECT_TRUE(m.advance(at, id).ok());
    text += static_cast<char>(id);
  }
  return std::nullopt;
}

TEST(RegexGbnf, TextsOfTheGrammarMatchTheExpressionAndTheOtherWayRound) {
  const std::pair<const char*, std::vector<const char*>> cases[] = {
      {"abc", {"abc", "ab", "abcd"}},
      {"^(foo|ba[rz])+$", {"foobar", "baz", "", "fo"}},
      {"[A-Z]{2,3}-\\d{4}", {"AB-1234", "ABCD-1234", "A-1234"}},
      {"(?:a|b)*?c??", {"", "abac", "cc"}},
      {"\\w+@\\w+\\.(com|org)", {"a_1@b.com", "a@b.net"}},
      {"[^a-z\\n]+", {"ABC", "aBC", "\xc3\xa9"}},
      {".{2}", {"ab", "\xc3\xa9\xe2\x82\xac", "a\n", "abc"}},
      {"\\u00e9\\x41\\t\\/\\-\\.", {"\xc3\xa9" "A\t/-."}},
      {"[\\]\\-x]{3}", {"]-x", "abc"}},
      {"[a-]b", {"-b", "ab"}},
      {"a{3}|b{2,}|c{0,1}", {"aaa", "bb", "bbbb", "c", "", "aa"}},
      {"x{y", {"x{y"}},
      {"(a(b(c)?)?)?", {"", "a", "ab", "abc", "ac"}},
      {"[\\d\\s]+", {"1 2", "a"}},
      {"\\S\\D\\W", {"ab!", "a1!", "abc"}},
      {"[^\\W][^\\D][^\\S]", {"a1 ", "!1 ", "aa ", "a1x"}},
      {"[\\s\\S]{2}", {"\xc3\xa9\n", "\xe3\x80\x80!"}},
      {"(?<year>\\d{4})-(0[1-9]|1[0-2])", {"2024-12", "2024-13"}},
  };
  for (const auto& [pattern, texts] : cases) {
    const auto gbnf = gbnf_of_regex(pattern);
    ASSERT_TRUE(gbnf.ok()) << gbnf.status();
    const auto m = matcher(*gbnf, vocabulary());
    std::string body = pattern;
    if (body.front() == '^') body = body.substr(1, body.size() - 2);
    for (size_t i; (i = body.find("\\u00e9")) != std::string::npos;) body.replace(i, 6, "\xc3\xa9");
    const auto regex = Regex::compile("\\A(?:" + body + ")\\z");
    ASSERT_TRUE(regex.ok()) << regex.status();
    const auto expected = [&](std::string_view text) {
      size_t begin = 0, end = 0;
      return regex->find(text, 0, &begin, &end) == Regex::Found::kMatch;
    };
    for (const char* text : texts) EXPECT_EQ(matches(*m, text), expected(text)) << pattern << " on '" << text << "'";
    Rng rng(1);
    for (int i = 0; i < 50; ++i) {
      const auto text = random_text(*m, rng);
      EXPECT_TRUE(!text || expected(*text)) << pattern << " made '" << text.value_or("") << "'";
    }
  }
}

TEST(RegexGbnf, WhatIsNotRegularIsRefusedByName) {
  const std::pair<const char*, const char*> cases[] = {
      {"(?=a)b", "look-ahead"}, {"(?!a)b", "look-ahead"}, {"(?<=a)b", "look-behind"}, {"(a)\\1", "back-references"}, {"\\k<a>", "back-references"},
      {"a\\b", "word boundaries"}, {"a^b", "'^'"}, {"a$b", "'$'"}, {"\\p{L}", "Unicode properties"}, {"(?i)a", "inline flags"}, {"(a", "without ')'"},
      {"a)", "without '('"}, {"[a", "without ']'"}, {"*", "quantifier"}, {"a**", "quantifier"}, {"a++", "possessive"}, {"\\", "at the end"}, {"[^\\s\\S]", "nothing"}, {"[^\\u0000-\\u{10ffff}]", "nothing"},
      {"\\ud800", "surrogate"}, {"a{3,1}", "out of order"}, {"[z-a]", "out of order"}};
  for (const auto& [pattern, expected] : cases) {
    const auto gbnf = gbnf_of_regex(pattern);
    ASSERT_FALSE(gbnf.ok()) << pattern;
    EXPECT_THAT(std::string(gbnf.status().message()), HasSubstr(expected)) << pattern;
  }
}

// ---- JSON -----------------------------------------------------------------------------------------------------------

std::unique_ptr<GrammarMatcher> schema_matcher(const std::string& schema) {
  const auto gbnf = gbnf_of_schema(OrderedJson::parse(schema));
  EXPECT_TRUE(gbnf.ok()) << gbnf.status() << " " << schema;
  return gbnf.ok() ? matcher(*gbnf, vocabulary()) : nullptr;
}

TEST(JsonSchema, AcceptsWhatIsValidAndNothingElse) {
  struct Case {
    const char* schema;
    std::vector<const char*> good, bad;
  };
  const Case cases[] = {
      {R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"string"}},"required":["a"]})",
       {R"({"a":1})", R"({"a": -20, "b": "x\n\u00e9é"})", "{\n  \"a\": 0\n}"}, {R"({})", R"({"b":"x","a":1})", R"({"a":1.5})", R"({"a":01})", R"({"a":1,})", R"({"a":1,"c":2})", R"({"a":1} )"}},
      {R"({"type":"object","properties":{"a":{"type":"null"},"b":{"type":"null"},"c":{"type":"null"}}})",
       {"{}", R"({"a":null})", R"({"b":null})", R"({"a":null,"c":null})", R"({"b":null,"c":null})"}, {R"({"b":null,"a":null})", R"({"a":null,"a":null})", R"({,"a":null})"}},
      {R"({"type":"object","properties":{"ab":{"type":"integer"}},"additionalProperties":{"type":"boolean"}})",
       {"{}", R"({"ab":1})", R"({"ab":1,"x":true})", R"({"a":true})", R"({"abc":true,"b":false})"}, {R"({"ab":true})", R"({"x":1})", R"({"x":true,"ab":1})", R"({"\u0061b":true})"}},
      {R"({"type":"object","additionalProperties":{"type":"integer"},"minProperties":1,"maxProperties":2})", {R"({"x":1})", R"({"x":1,"y":2})"}, {"{}", R"({"x":1,"y":2,"z":3})", R"({"x":"1"})"}},
      {R"({"type":"object","patternProperties":{"^x-[a-z]+$":{"type":"integer"}},"additionalProperties":false})", {"{}", R"({"x-a":1})"}, {R"({"y":1})", R"({"x-A":1})"}},
      {R"({"type":"array","items":{"type":"integer"},"minItems":1,"maxItems":3})", {"[1]", "[1, 2,3]"}, {"[]", "[1,2,3,4]", "[1,]", R"(["1"])"}},
      {R"({"type":"array","prefixItems":[{"type":"integer"},{"type":"string"}],"items":false,"minItems":1})", {"[1]", R"([1,"a"])"}, {"[]", R"(["a"])", R"([1,"a",2])"}},
      {R"({"type":"array","prefixItems":[{"type":"integer"}],"items":{"type":"string"}})", {"[1]", R"([1,"a","b"])"}, {"[]", "[1,2]"}},
      {R"({"type":"string","minLength":2,"maxLength":3})", {R"("ab")", R"("é€\n")"}, {R"("a")", R"("abcd")", "\"a\nb\""}},
      {R"({"type":"string","pattern":"^[a-c]+\"?$"})", {R"("abc")", R"("a\"")"}, {R"("abd")", R"("a"")", R"("")"}},
      {R"({"type":"string","pattern":"b\\d"})", {R"("xxb1yy")", R"("b1")"}, {R"("b")", R"("xb")"}},
      {R"({"enum":["a",1,null,{"x":[1]},"é\""]})", {R"("a")", "1", "null", R"({"x":[1]})", R"("é\"")"}, {"2", R"("b")", R"({"x":[2]})"}},
      {R"({"type":["string","null"],"enum":["a",null,3]})", {R"("a")", "null"}, {"3"}},
      {R"({"const":3.5})", {"3.5"}, {"3", "4"}},
      {R"({"anyOf":[{"type":"integer"},{"type":"array","items":{"type":"boolean"}}]})", {"3", "[true]"}, {"[3]", "true"}},
      {R"({"oneOf":[{"type":"object","properties":{"k":{"const":"a"},"v":{"type":"integer"}},"required":["k","v"]},{"type":"object","properties":{"k":{"const":"b"}},"required":["k"]}]})",
       {R"({"k":"a","v":1})", R"({"k":"b"})"}, {R"({"k":"a"})", R"({"k":"c"})"}},
      {R"({"allOf":[{"type":"object","properties":{"a":{"type":"number"}},"required":["a"]},{"properties":{"a":{"type":"integer","minimum":3},"b":{"type":"null"}},"required":["b"]}]})",
       {R"({"a":3,"b":null})"}, {R"({"a":2,"b":null})", R"({"a":3})", R"({"a":3.5,"b":null})"}},
      {R"({"$defs":{"n":{"type":"object","properties":{"v":{"type":"integer"},"next":{"anyOf":[{"$ref":"#/$defs/n"},{"type":"null"}]}},"required":["v","next"]}},"$ref":"#/$defs/n"})",
       {R"({"v":1,"next":{"v":2,"next":null}})"}, {R"({"v":1})", R"({"v":1,"next":3})"}},
      {R"({"$ref":"#/definitions/a~1b%20c","definitions":{"a/b c":{"type":"boolean"}},"description":"x"})", {"true"}, {"1"}},
      {R"({"type":"integer","nullable":true})", {"null", "5"}, {"\"\""}},
      {R"({"type":"string","format":"date"})", {R"("2024-02-28")", R"("2024-12-31")"}, {R"("2024-02-30")", R"("2024-04-31")", R"("24-01-01")"}},
      {R"({"type":"string","format":"date-time"})", {R"("2024-02-28T23:59:59Z")", R"("2024-02-28T00:00:00.123+02:00")"}, {R"("2024-02-28 23:59:59Z")", R"("2024-02-28T24:00:00Z")"}},
      {R"({"type":"string","format":"uuid"})", {R"("123e4567-e89b-12d3-a456-426614174000")"}, {R"("123e4567")"}},
      {R"({"type":"string","format":"ipv4"})", {R"("192.168.0.1")"}, {R"("256.1.1.1")", R"("1.2.3")", R"("01.2.3.4")"}},
      {R"({"type":"string","format":"ipv6"})", {R"("::")", R"("::1")", R"("fe80::1:2")", R"("1:2:3:4:5:6:7:8")"}, {R"("1:2")", R"("1::2::3")"}},
      {R"({"type":"string","format":"email"})", {R"("a.b+c@x-y.org")"}, {R"("a@b")", R"("@x.org")"}},
      {"true", {"1", "{}", R"([null,{"a":[]}])"}, {"", "nul"}},
      {"{}", {R"("x")"}, {"x"}},
  };
  for (const Case& c : cases) {
    const auto m = schema_matcher(c.schema);
    if (!m) continue;
    for (const char* text : c.good) EXPECT_TRUE(matches(*m, text)) << c.schema << " refuses " << text;
    for (const char* text : c.bad) EXPECT_FALSE(matches(*m, text)) << c.schema << " accepts " << text;
  }
}

TEST(JsonSchema, IntegerRangesAreExact) {
  const std::pair<int, int> ranges[] = {{0, 0}, {0, 9}, {0, 10}, {5, 123}, {-7, 8}, {-130, -20}, {99, 101}, {-1, 0}, {1000, 1999}, {17, 17}, {-25, 1005}};
  for (const auto& [low, high] : ranges) {
    const auto m = schema_matcher(R"({"type":"integer","minimum":)" + std::to_string(low) + R"(,"exclusiveMaximum":)" + std::to_string(high + 1) + "}");
    for (int i = -2100; i <= 2100; ++i) ASSERT_EQ(matches(*m, std::to_string(i)), low <= i && i <= high) << i << " in " << low << ".." << high;
    EXPECT_FALSE(matches(*m, "-0"));
    EXPECT_FALSE(matches(*m, "007"));
  }
  EXPECT_TRUE(matches(*schema_matcher(R"({"type":"integer","minimum":5})"), "9999999999999999"));
  EXPECT_FALSE(matches(*schema_matcher(R"({"type":"integer","minimum":5})"), "4"));
  EXPECT_TRUE(matches(*schema_matcher(R"({"type":"integer","maximum":5.5})"), "-123456"));
  EXPECT_FALSE(matches(*schema_matcher(R"({"type":"integer","maximum":5.5})"), "6"));
}

TEST(JsonSchema, NumberRangesAreExact) {
  const std::tuple<double, bool, double, bool> ranges[] = {{0, false, 1, false}, {0, true, 1, true}, {-1.5, false, 2.25, true}, {0.125, false, 0.375, false}, {-3, true, -0.5, false},
                                                           {10, false, 100.05, false}, {0.1, true, 0.1001, true}, {-0.25, false, 0, true}, {2.5, false, 2.5, false}};
  Rng rng(7);
  for (const auto& [low, low_open, high, high_open] : ranges) {
    OrderedJson schema = {{"type", "number"}};
    schema[low_open ? "exclusiveMinimum" : "minimum"] = low;
    schema[high_open ? "exclusiveMaximum" : "maximum"] = high;
    const auto m = schema_matcher(schema.dump());
    const auto inside = [&, l = low, lo = low_open, h = high, ho = high_open](double x) { return (lo ? x > l : x >= l) && (ho ? x < h : x <= h); };
    for (int i = 0; i < 2000; ++i) {
      const int places = static_cast<int>(rng.below(5));
      const double span = rng.below(2) == 0 ? 4 : 200;
      char text[64];
      std::snprintf(text, sizeof(text), "%.*f", places, (static_cast<double>(rng.below(1'000'001)) / 1e6 - 0.5) * span);
      if (std::string_view(text).substr(0, 2) == "-0" && std::strtod(text, nullptr) == 0) continue;
      ASSERT_EQ(matches(*m, text), inside(std::strtod(text, nullptr))) << text << " under " << schema.dump();
    }
    for (int i = 0; i < 200; ++i) {
      const auto text = random_text(*m, rng);
      if (!text) continue;
      ASSERT_TRUE(Json::accept(*text)) << *text;
      ASSERT_TRUE(inside(std::strtod(text->c_str(), nullptr))) << *text << " under " << schema.dump();
    }
  }
}

TEST(JsonSchema, EveryTextOfAnObjectGrammarParses) {
  const auto m = matcher(gbnf_of_json_object(), vocabulary());
  Rng rng(3);
  int complete = 0;
  for (int i = 0; i < 400; ++i) {
    const auto text = random_text(*m, rng, 2000);
    if (!text) continue;
    ++complete;
    ASSERT_TRUE(Json::accept(*text)) << *text;
    ASSERT_TRUE(Json::parse(*text).is_object());
  }
  EXPECT_GT(complete, 20);
}

}  // namespace
}  // namespace shoal
