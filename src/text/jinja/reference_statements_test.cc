// Templates and what reference Jinja2 makes of them, tests/text_oracle.py has them too, beside an installed Jinja2.
#include "text/jinja/test_support.h"
#include "text/tokenizer/test_support.h"

namespace shoal {
namespace {

constexpr const char* kRefused = nullptr;

struct Case {
  const char* source;
  const char* want;
};

void expect_all(const std::vector<Case>& cases) {
  for (const Case& c : cases) {
    const std::string got = render(c.source, kReferenceVariables);
    if (c.want == kRefused) {
      EXPECT_TRUE(got.starts_with("error: ")) << c.source << " gives " << got;
    } else {
      EXPECT_EQ(got, c.want) << c.source;
    }
  }
}

TEST(ReferenceStatements, Loops) {
  expect_all({
      {R"x({% for x in items %}{{ loop.index }}/{{ loop.length }}:{{ x }}{{ "," if not loop.last }}{% endfor %})x", "1/3:3,2/3:1,3/3:2"},
      {"{% for x in items %}{{ loop.first }}{{ loop.last }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.previtem }}{{ loop.nextitem }};{% endfor %}",
       "TrueFalse0321;FalseFalse12132;FalseTrue2101;"},
      {"{% for x in [] %}a{% else %}none{% endfor %}{% for x in items if x > 5 %}a{% else %}filtered{% endfor %}", "nonefiltered"},
      {"{% for x in items if x > 1 %}{{ x }}{{ loop.index }}{% endfor %}{{ x }}{{ loop }}", "3122"},
      {"{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}{% for k in d %}{{ k }}{% endfor %}{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}",
       "b=2;a=1;c={'x': [1, {'y': 'z'}]};bac123"},
      {"{% for x in nested recursive %}{{ loop.depth }}{% if x is iterable %}[{{ loop(x) }}]{% else %}{{ x }}{% endif %}{% endfor %}",
       "1[212[3233]]1[24]"},
      {"{% for x in many %}{% if x == 3 %}{% continue %}{% endif %}{% if x > 6 %}{% break %}{% endif %}{{ x }}{% endfor %}", "012456"},
      {R"x({% for x in items %}{{ loop.cycle("a", "b") }}{{ loop.changed(x > 1) }}{% endfor %})x", "aTruebTrueaTrue"},
      {"{% set x = 1 %}{% for i in items %}{% set x = x + i %}{{ x }}{% endfor %}{{ x }}", "4231"},
      {R"x({% set ns = namespace(x=1, y="a") %}{% for i in items %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}{{ ns.y }})x", "7a"},
      {"{% macro each(l) %}{% for i in l %}{{ caller(i, loop.index) }}{% endfor %}{% endmacro %}{% call(x, y) each(items) %}[{{ x }}{{ y }}]{% endcall %}",
       "[31][12][23]"},
      {"{% for m in messages %}{% generation %}{{ m.role }}{% endgeneration %}{% endfor %}", "systemuserassistant"},
      {"{% for %}", kRefused},
      {"{% for i in range(3) %}{% for j in range(i) %}{{ loop.index }}{{ i }}{% else %}-{% endfor %}{% endfor %}", "-111222"},
      {"{% for m in messages %}{{ \"<|\" ~ m.role ~ \"|>\" }}{% if m.content is string %}{{ m.content|trim }}{% elif m.tool_calls %}{% for c in m.tool_calls %}{{ c.function.name }}({{ c.function.arguments|tojson }}){% endfor %}{% endif %}\n{% endfor %}",
       "<|system|>Be <b>terse</b>.<|user|>Grüße, \"you\" & 'me' 🙂\n  two<|assistant|>f({\"b\": 1, \"a\": [1.5, true, null]})"},
      {"{{ loop is defined }}{% for x in items %}{{ loop is defined }}{% endfor %}", "FalseTrueTrueTrue"},
      {R"x({% for x in "héy" %}{{ x }}.{% endfor %})x", "h.é.y."},
      {"{% for i in 5 %}{% endfor %}", kRefused},
      {"{% for i in none %}{% endfor %}", kRefused},
      {"{% for i in missing %}x{% else %}e{% endfor %}", "e"},
      {"{% for a, b in [1] %}{% endfor %}", kRefused},
      {"{% for a, b in [(1, 2, 3)] %}{% endfor %}", kRefused},
  });
}

TEST(ReferenceStatements, MacrosAndCalls) {
  expect_all({
      {R"x({% macro m(a, b=2, c="x") %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }}{{ m(1, 3) }}{{ m(c=5, a=0) }}{{ m() }})x", "12x13x0252x"},
      {"{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, x=3) }}", "(1, 2){'x': 3}"},
      {"{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}", kRefused},
      {"{% macro m(a) %}{{ a }}{% endmacro %}{{ m(b=2) }}", kRefused},
      {"{% macro m(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}{{ m.name }}{{ m.arguments }}", "11m('a', 'b')"},
      {"{% macro wrap(x) %}<{{ caller() }}{{ x }}>{% endmacro %}{% call wrap(1) %}in{{ n }}{% endcall %}", "<in71>"},
      {"{% macro f(x) %}{% if x > 0 %}{{ x }}{{ f(x - 1) }}{% endif %}{% endmacro %}{{ f(5) }}", "54321"},
      {"{{ m is defined }}{% macro m() %}{% endmacro %}{{ m is defined }}", "FalseTrue"},
      {"{% set v = 1 %}{% macro m() %}{{ v }}{% endmacro %}{% set v = 2 %}{{ m() }}", "2"},
      {"{% macro m() %}{% set z = 5 %}{{ z }}{% endmacro %}{{ m() }}{{ z }}", "5"},
      {"{% macro t(p, depth=0) -%}{%- for k, v in p.items() %}\n{{ \"  \" * depth }}{{ k }}: {% if v is mapping %}{{ t(v, depth + 1) }}{% else %}{{ v }}{% endif %}{% endfor %}{%- endmacro %}{{ t(d) }}",
       "b: 2a: 1c:   x: [1, {'y': 'z'}]"},
      {"{{ caller() }}", kRefused},
  });
}

TEST(ReferenceStatements, Assignments) {
  expect_all({
      {"{% set x %}a{{ n }}b{% endset %}{{ x }}{{ x|length }}{% set y | upper %}abc{{ s }}{% endset %}{{ y }}{% set a, b = 1, 2 %}{{ a }}{{ b }}",
       "a7b3ABCHELLO WORLD12"},
      {"{% with a=1, b=n %}{{ a }}{{ b }}{% set c = 3 %}{% endwith %}{{ a }}{{ c }}", "17"},
      {"{% set %}", kRefused},
      {"{% set n.x = 1 %}", kRefused},
      {"{% set s.x = 1 %}", kRefused},
      {R"x({% set c = cycler("a", "b") %}{{ c.next() }}{{ c.next() }}{{ c.current }}{{ c.next() }}{{ c.reset() }}{{ c.next() }})x", "abaaNonea"},
      {R"x({% set j = joiner(", ") %}{{ j() }}a{{ j() }}b{{ j() }})x", "a, b, "},
      {R"x({%- set ns = namespace(found=false) -%}{%- for m in messages[::-1] if not ns.found -%}{%- if m.role == "user" -%}{%- set ns.found = true -%}{{ m.content }}{%- endif -%}{%- endfor -%})x",
       "Grüße, \"you\" & 'me' 🙂\n  two\n"},
      {R"x({% set x = items|map("string") %}{{ x|list }}{{ x|list }})x", "['3', '1', '2'][]"},
      {R"x({% set x = items|map("string") %}{{ x|first }}{{ x|list }})x", "3['1', '2']"},
      {"{% set a = [1] + [2] %}{{ a }}{% set d2 = dict(d, z=1) %}{{ d2.z }}{{ d2.keys()|list }}", "[1, 2]1['b', 'a', 'c', 'z']"},
      {"{% set a, b = [1] %}", kRefused},
      {"{% set x = 5 if false %}{{ x is defined }}[{{ x }}]", "False[]"},
  });
}

TEST(ReferenceStatements, WhiteSpaceCommentsAndRaw) {
  expect_all({
      {"a\n  {% if t %}\n  b\n  {% endif %}\nc\n", "a\n  b\nc"},
      {"a \n {%- if t -%} \n b \n {%- endif -%} \n c", "abc"},
      {"a {%+ if t +%}\n b {%- endif %}\n\n c", "a \n b\n c"},
      {"  {{ n }}  \n  {{- n -}}  \n  {# c #}\nx", "  77x"},
      {"{#- c -#} x {# multi\nline #} y", "x  y"},
      {"{% raw %}{{ x }}{% if %}{% endraw %}{{ n }}", "{{ x }}{% if %}7"},
      {"x\n  {% raw -%}  {{ a }}  {%- endraw %}\ny", "x\n{{ a }}y"},
      {"line\n\n", "line\n"},
      {"line\r\nb\rc", "line\nb\nc"},
      {"{# open", kRefused},
  });
}

TEST(ReferenceStatements, TheRest) {
  expect_all({
      {R"x({% filter upper %}abc{{ s }}{% endfilter %}{% filter replace("a", "b")|upper %}aaa{% endfilter %})x", "ABCHELLO WORLDBBB"},
      {"{% if n > 10 %}a{% elif n > 5 %}b{% else %}c{% endif %}{% if not missing %}d{% endif %}{% if false %}{{ 1/0 }}{% endif %}", "bd"},
      {R"x({{ "}}" }}{{ {"a": {"b": 1}}["a"]["b"] }}{{ "{%" }})x", "}}1{%"},
      {"{% generation %}x{{ n }}{% endgeneration %}", "x7"},
      {"{% print n %}", "7"},
      {"{% block b %}{{ n }}{% endblock %}", "7"},
      {R"x({{ raise_exception("no " ~ n) }})x", kRefused},
      {R"x({% include "x" %})x", kRefused},
      {"{% unknown %}", kRefused},
      {"{% if %}", kRefused},
      {"{{ 1 + }}", kRefused},
      {R"x({{ "unclosed }})x", kRefused},
      {"{% if x %}", kRefused},
      {"{% endif %}", kRefused},
      {"{{ (1 }}", kRefused},
      {"{{ [1, 2 }}", kRefused},
      {"{{ a b }}", kRefused},
      {"{{ 1 is not }}", kRefused},
      {R"x({{ items|select("odd") is string }}{{ (items|select("odd"))|length }})x", kRefused},
      {"{% break %}", kRefused},
      {"{{ n() }}", kRefused},
      {"{{ s() }}", kRefused},
      {"{{ range(1000000)|length }}", kRefused},
      {R"x({{ "a".b.c }})x", kRefused},
      {R"x({{ "%d" % "x" }})x", kRefused},
      {R"x({{ "%s %s" % 1 }})x", kRefused},
      {R"x({{ "{}".format() }})x", kRefused},
      {R"x({{ x if x is defined else "u" }})x", "u"},
      {"{{ n is defined and n > 5 }}", "True"},
      {"{{ not n is none }}", "True"},
      {"{{ n is not none }}", "True"},
      {"{{ 1 is in [1] }}", "True"},
      {"{{ n is divisibleby(7) }}", "True"},
      {"{{ -n|abs }}", "7"},
      {R"x({{ -1|string ~ "x" }})x", "-1x"},
      {R"x({{ "a"|upper ~ "b"|upper }})x", "AB"},
      {"{{ 1 + 2|string|int }}", "3"},
      {R"x({{ [1,2,3,]|length }}{{ {"a":1,}|length }}{{ range(3,)|list }})x", "31[0, 1, 2]"},
  });
}

}  // namespace
}  // namespace shoal
