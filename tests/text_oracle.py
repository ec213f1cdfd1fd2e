#!/usr/bin/env python3
"""Compares `shoal tokenize` and `shoal render` with the reference libraries on texts and templates made up here.

usage: text_oracle.py BINARY [--seed N] [--texts N]
Needs PyPI `tokenizers` and `jinja2` in the interpreter's environment; without them it says so and exits with 77 (skip).
"""
import argparse, itertools, json, pathlib, random, subprocess, sys, tempfile

try:
    import jinja2, jinja2.sandbox, jinja2.ext
    from jinja2 import nodes
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
except ImportError as missing:
    print(f'skipped: {missing}')
    sys.exit(77)

WORDS = ["hello", "World", "it's", "I'LL", "3.14", "1,234", "über", "naïve", "日本語", "한국어", "🙂", "👩‍👩‍👧", "ﬁ", "Å", "a\u0301", "…", "\t",
         "\n", "\r\n", "  ", "   ", " ", "\u00a0", "\u3000", "\u200b", "(x)", "{}", "!?", "--", "_", "__init__", "<s>", "</s>", "<|user|>",
         "▁", "Ġ", "\u0000", "\u0085", "مرحبا", "नमस्ते", "İ", "ß", "²", "½", "Ⅳ", "٣", "\u0345", "CamelCase", "http://a.b/c?d=e", "'s", "ſ",
         "word", "the", "tokens", "[MASK]", "ﷺ", "\ufeff", "\u180e", "x" * 50, "ab" * 40]


def random_text(rng):
    return ''.join(rng.choice(WORDS) + rng.choice(['', '', ' ', ' ', '\n']) for _ in range(rng.randint(0, 12)))


# ---- tokenizers -----------------------------------------------------------------------------------------------------

LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
GPT4O = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?"
         r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*"
         r"|\s*[\r\n]+|\s+(?!\S)|\s+")
SPECIALS = ["<unk>", "<s>", "</s>", "<|user|>"]
P, N, D = pre_tokenizers, normalizers, decoders


def corpus(rng):
    texts = [random_text(rng) for _ in range(400)]
    for special in SPECIALS: texts = [t.replace(special, '') for t in texts]  # no token of the model is spelled like one
    return texts


def byte_level(name, pre, rng, normalizer=None, **model):
    t = Tokenizer(models.BPE(**model))
    t.pre_tokenizer = pre
    if normalizer: t.normalizer = normalizer
    t.decoder = D.ByteLevel()
    t.train_from_iterator(corpus(rng), trainers.BpeTrainer(vocab_size=700, special_tokens=SPECIALS, initial_alphabet=P.ByteLevel.alphabet(), show_progress=False))
    return name, t


def chars(name, pre, rng, normalizer=None, decoder=None, **model):
    t = Tokenizer(models.BPE(unk_token="<unk>", **model))
    if pre: t.pre_tokenizer = pre
    if normalizer: t.normalizer = normalizer
    if decoder: t.decoder = decoder
    specials = SPECIALS + ([f"<0x{b:02X}>" for b in range(256)] if model.get('byte_fallback') else [])
    options = {k: model[k] for k in ('continuing_subword_prefix', 'end_of_word_suffix') if k in model}
    t.train_from_iterator(corpus(rng), trainers.BpeTrainer(vocab_size=900, special_tokens=specials, limit_alphabet=60, show_progress=False, **options))
    if model.get('byte_fallback'):  # the byte tokens are ordinary vocabulary, as in SentencePiece models
        state = json.loads(t.to_str())
        state['added_tokens'] = [a for a in state['added_tokens'] if not a['content'].startswith('<0x')]
        t = Tokenizer.from_str(json.dumps(state))
    return name, t


def unigram(name, pre, rng, normalizer=None, decoder=None):
    t = Tokenizer(models.Unigram())
    if pre: t.pre_tokenizer = pre
    if normalizer: t.normalizer = normalizer
    if decoder: t.decoder = decoder
    t.train_from_iterator(corpus(rng), trainers.UnigramTrainer(vocab_size=400, special_tokens=SPECIALS, unk_token="<unk>", show_progress=False))
    return name, t


def pipelines(rng):
    bl = P.ByteLevel(add_prefix_space=False, use_regex=False)
    split = lambda r, b="isolated", invert=False: P.Split(Regex(r), b, invert)
    spm = D.Sequence([D.Replace("▁", " "), D.ByteFallback(), D.Fuse(), D.Strip(" ", 1, 0)])
    yield byte_level('gpt2', P.ByteLevel(add_prefix_space=False), rng)
    yield byte_level('gpt2-prefix', P.ByteLevel(add_prefix_space=True), rng)
    yield byte_level('llama3', P.Sequence([split(LLAMA3), bl]), rng, ignore_merges=True)
    yield byte_level('gpt4o', P.Sequence([split(GPT4O), bl]), rng, normalizer=N.NFC())
    yield byte_level('starcoder', P.Sequence([P.Digits(individual_digits=True), P.ByteLevel(add_prefix_space=False)]), rng)
    yield byte_level('punctuation', P.Sequence([P.Punctuation("contiguous"), P.Digits(False), P.ByteLevel(add_prefix_space=False)]), rng)
    for b in ('removed', 'isolated', 'merged_with_previous', 'merged_with_next', 'contiguous'):
        for invert in (False, True):
            yield byte_level(f'split-{b}-{invert}', P.Sequence([split(r'\s+|\p{P}', b, invert), bl]), rng)
        yield byte_level(f'string-{b}', P.Sequence([P.Split(" ", b), bl]), rng)
        yield byte_level(f'punct-{b}', P.Sequence([P.Punctuation(b), bl]), rng)
    yield byte_level('whitespace', P.Sequence([P.Whitespace(), bl]), rng)
    yield byte_level('whitespace-split', P.Sequence([P.WhitespaceSplit(), bl]), rng)
    yield byte_level('bert-pre', P.Sequence([P.BertPreTokenizer(), bl]), rng)
    yield byte_level('metaspace-then-bytes', P.Sequence([P.Metaspace(), bl]), rng)
    yield byte_level('char-delimiter', P.Sequence([P.CharDelimiterSplit(' '), bl]), rng)
    for name, n in dict(nfc=N.NFC(), nfd=N.NFD(), nfkc=N.NFKC(), nfkd=N.NFKD(), lower=N.Lowercase(), strip=N.Strip(), nmt=N.Nmt(), bert=N.BertNormalizer(),
                        accents=N.Sequence([N.NFD(), N.StripAccents()]), replace=N.Replace(Regex(r"\s+"), "_"), literal=N.Replace("a", "bb"),
                        prepend=N.Prepend(">")).items():
        yield byte_level(f'normalizer-{name}', P.ByteLevel(add_prefix_space=False), rng, normalizer=n)
    yield chars('llama2', None, rng, N.Sequence([N.Prepend("▁"), N.Replace(" ", "▁")]), spm, byte_fallback=True, fuse_unk=True)
    yield chars('mistral', P.Metaspace(prepend_scheme="first", split=False), rng, None, spm, byte_fallback=True, fuse_unk=True)
    yield chars('metaspace-always', P.Metaspace(prepend_scheme="always"), rng, None, D.Metaspace(prepend_scheme="always"))
    yield chars('metaspace-never', P.Metaspace(prepend_scheme="never"), rng, None, D.Metaspace(prepend_scheme="never"), fuse_unk=True)
    yield chars('words', P.Whitespace(), rng, None, D.BPEDecoder(suffix="</w>"), end_of_word_suffix="</w>")
    yield chars('prefixed', P.WhitespaceSplit(), rng, None, D.WordPiece(prefix="##"), continuing_subword_prefix="##")
    yield chars('no-decoder', P.Whitespace(), rng)
    yield unigram('t5', P.Metaspace(), rng, N.Sequence([N.NFKC(), N.Replace(Regex(" {2,}"), " ")]), D.Metaspace())
    yield unigram('unigram-whole', P.Metaspace(split=False), rng, None, D.Metaspace())
    name, t = byte_level('added', P.ByteLevel(add_prefix_space=False), rng, normalizer=N.Lowercase())
    t.add_special_tokens([AddedToken("[MASK]", lstrip=True), AddedToken("<|r|>", rstrip=True), "<|user|>x"])
    t.add_tokens([AddedToken("word", single_word=True), AddedToken("HELLO", normalized=True), AddedToken("World", normalized=False), "  ", "   "])
    t.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)])
    yield name, t
    name, t = chars('llama2-added', None, rng, N.Sequence([N.Prepend("▁"), N.Replace(" ", "▁")]), spm, byte_fallback=True, fuse_unk=True)
    t.add_tokens([AddedToken("the", normalized=True), AddedToken("word tokens", normalized=True)])
    yield name, t
    name, t = byte_level('roberta', P.ByteLevel(add_prefix_space=True), rng)
    t.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 1))
    yield name, t


class Score:
    def __init__(self): self.bad = self.all = 0

    def check(self, what, got, want):
        self.all += 1
        if got == want: return
        self.bad += 1
        if self.bad <= 40: print(f'DIFFERS {what}\n  got  {got!r:.300}\n  want {want!r:.300}')


def run(binary, args, rows):
    done = subprocess.run([binary, *args], input=''.join(json.dumps(r) + '\n' for r in rows), capture_output=True, text=True, timeout=600)
    lines = [json.loads(line) for line in done.stdout.split('\n') if line]  # not splitlines(): text may hold U+2028
    if len(lines) != len(rows): sys.exit(f'{args}: {len(lines)} answers to {len(rows)} rows; {done.stderr[-300:]}')
    return lines


def check_tokenizers(binary, score, rng, count):
    for name, t in pipelines(rng):
        with tempfile.TemporaryDirectory() as folder:
            t.save(str(pathlib.Path(folder) / 'tokenizer.json'))
            texts = [random_text(rng) for _ in range(count)]
            for special, args in ((False, ['--no-special']), (True, [])):
                for text, row in zip(texts, run(binary, ['tokenize', '--model', folder, '--jsonl', *args], [dict(text=x) for x in texts])):
                    ids = t.encode(text, add_special_tokens=special).ids
                    score.check(f'{name} encode {text!r:.80}', row['ids'], ids)
                    if row['ids'] == ids: score.check(f'{name} decode {text!r:.80}', row['decoded'], t.decode(ids, skip_special_tokens=False))


# ---- templates ------------------------------------------------------------------------------------------------------

class Generation(jinja2.ext.Extension):
    tags = {'generation'}

    def parse(self, parser):
        lineno = next(parser.stream).lineno
        return nodes.CallBlock(self.call_method('_render'), [], [], parser.parse_statements(['name:endgeneration'], drop_needle=True)).set_lineno(lineno)

    def _render(self, caller): return caller()


def environment():
    e = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, 'jinja2.ext.loopcontrols'])
    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
    def raise_exception(message): raise jinja2.exceptions.TemplateError(message)
    e.filters['tojson'] = tojson
    e.globals['raise_exception'] = raise_exception
    return e


VARIABLES = dict(
    messages=[dict(role='system', content='Be <b>terse</b>.'), dict(role='user', content='Grüße, "you" & \'me\' 🙂\n  two\n'),
              dict(role='assistant', content=None, tool_calls=[dict(function=dict(name='f', arguments=dict(b=1, a=[1.5, True, None])))])],
    tools=[dict(name='z', n=3, on=True), dict(name='A', n=1, on=False), dict(name='m', n=2, on=True)],
    bos_token='<s>', s='Hello World', n=7, f=2.5, neg=-3, t=True, none=None, empty='', items=[3, 1, 2], d=dict(b=2, a=1, c=dict(x=[1, {'y': 'z'}])),
    u='ÀÉß ﬁ İ ǆ', ws='  a b\tc \n', big=12345678901, many=list(range(30)), nested=[[1, [2, 3]], [4]], words='one two three two one', html='<a href="x">&</a>')

EXPRESSIONS = r'''
1 + 2 * 3 - 4 / 2|||7 // 2, -7 // 2, 7 % 3, -7 % 3, 7 % -3|||2 ** 3 ** 2, -2 ** 2, 2 ** -1|||1 / 3, 1e16, 1e15, 1e-5, 0.1 + 0.2, 100.0, 1.5e300 * 1e10
f // 1, f % 2, -f // 1|||'a' * 3, 3 * 'ab', [1] * 2|||'a' ~ 1 ~ none ~ true ~ 1.0|||1 < 2 < 3, 3 > 2 > 2, 1 == 1.0 == true|||'a' < 'b', [1, 2] < [1, 3]
not true or true and false|||none or 'x', 0 and 1, '' or []|||1 if t else 2, (1 if false), 1 if false else 2 if false else 3
items[0], items[-1], items[5], items[1:], items[::-1], items[:-1], items[::2]|||s[0], s[-1], s[1:4], s[::-1], s[20:], u[1:3], u[::-1]
d.a, d['a'], d.missing, d.c.x[1].y, d.get('zz', 5), d.get('zz')|||d.items()|list, d.keys()|list, d.values()|list, d|length, d.items()
'a' in d, 'a' in 'abc', 4 in items, 3 not in items, 'x' in missing|||none is none, missing is defined, s is string, d is mapping, items is sequence, n is odd, n is even
n is number, f is float, t is boolean, t is number, n is integer, t is integer, items is iterable, 5 is divisibleby 5, 3 is in items, 1 is eq 1, s is sameas s
'abc' is lower, 'ABC' is upper, raise_exception is callable, d is iterable, d is sequence, 'x' is sequence, none is iterable|||u|upper, u|lower, u|capitalize, u|title, u.title(), u.swapcase(), u.casefold()
s|upper|lower|title|capitalize|||'hello-world (foo) [bar] {baz} o\'neil'|title, "it's a test".title(), 'x1y2'.title()|||ws|trim, ws.strip(), ws.lstrip(), ws.rstrip(), 'xxaxx'.strip('x'), ('xxaxx'|trim('x'))
words.split(), words.split(' ', 1), words.rsplit(' ', 1), words.split('two'), 'a,b,,c'.split(','), ''.split(), ''.split(','), ' a  b '.split(none, 1), ' a  b '.rsplit(none, 1)
words.replace('two', 2|string), words.replace('o', '0', 2), 'abc'.replace('', '-')|||words.find('two'), words.rfind('two'), words.find('zz'), words.index('two'), words.count('o'), words.find('t', 5), words.count('')
s.startswith('He'), s.endswith(('x', 'ld')), s.startswith('llo', 2), s.startswith('')|||'-'.join(['a', 'b']), ['a', 1, none]|join('-'), tools|join(', ', attribute='name'), [1,2]|join
'7'.zfill(3), '-7'.zfill(4), 'a'.center(5, '*'), 'ab'.center(5), 'a'.ljust(3) ~ '|', 'a'.rjust(3), 'abc'|center(8)|||'a\nb\r\nc\n'.splitlines(), 'a\nb'.splitlines(true), 'a.b.c'.partition('.'), 'a.b.c'.rpartition('.'), 'a'.partition('x')
'abc'.isalpha(), '12'.isdigit(), '²'.isdigit(), '½'.isnumeric(), 'a1'.isalnum(), ' '.isspace(), ''.isspace(), 'Ab Cd'.istitle(), 'abc'.islower(), 'a_b'.isidentifier(), 'é'.isascii()
'abc'.removeprefix('a'), 'abc'.removesuffix('c'), 'a\tb'.expandtabs(4), 'x'.expandtabs()|||items|sort, items|sort(reverse=true), tools|sort(attribute='name')|map(attribute='name')|list, ['b', 'A', 'c']|sort, ['b', 'A', 'c']|sort(case_sensitive=true)
items|first, items|last, []|first, items|sum, items|max, items|min, tools|sum(attribute='n'), ['a','B']|max, tools|max(attribute='n')|||items|reverse|list, s|reverse, items|length, s|length, u|length, items|count
tools|selectattr('on')|map(attribute='name')|list, tools|rejectattr('on')|list|length, tools|selectattr('n', 'gt', 1)|map(attribute='n')|list, many|select('odd')|list, many|reject('divisibleby', 3)|list, [0, 1, '']|select|list
items|map('string')|list, items|map('float')|list, ['a', 'b']|map('upper')|join, tools|map(attribute='zz', default='-')|list, nested|map('first')|list|||tools|groupby('on')|list, (tools|groupby('on'))[0].grouper, tools|groupby('on')|map('last')|list
many|batch(7)|list, many|batch(7, 'x')|list|last, many|slice(4)|list, many|slice(4, 'x')|map('length')|list, [1, 2, 1, 'a', 'A']|unique|list|||d|dictsort, d|dictsort(reverse=true)|first, {'b': 1, 'A': 2}|dictsort, {'b': 1, 'a': 2}|dictsort(by='value'), d|items|list
d|tojson, d|tojson(indent=2), d|tojson(separators=(',', ':')), d|tojson(sort_keys=true), u|tojson, u|tojson(ensure_ascii=true), '\u2028\x7f\x01"\\/'|tojson, [1.0, 1e100, -0.0, 1e-7]|tojson, []|tojson(indent=1), {}|tojson, [[], {}]|tojson(indent=4)
messages|tojson, messages|tojson(indent=4), 'a'|tojson, none|tojson, true|tojson, (1, 2)|tojson, {1: 2, none: 3, true: 4}|tojson|||missing|tojson|||(items|map('string'))|tojson|||d.items()|tojson
s|default('x'), missing|default('x'), ''|default('x', true), none|default('x'), missing|d|||'3'|int, '3.9'|int, 'x'|int, 'x'|int(5), 3.9|int, -3.9|int, 'ff'|int(base=16), '0x1f'|int(0, 16), none|int, ' 12 '|int, true|int
'3.5'|float, 'x'|float, 'x'|float(1.5), 3|float, '1e3'|float|||2.5|round, 3.5|round, 2.567|round(2), 2.5|round(0, 'ceil'), 2.5|round(0, 'floor'), 7|round, 1234.5|round(-2), 0.125|round(2), 42.55|round(1)
-3|abs, neg|abs, f|abs|||'a\nb\n\nc'|indent, 'a\nb'|indent(2, true), 'a\n\nb'|indent(2, blank=true), 'a\nb'|indent('> ')|||words|truncate(10), words|truncate(10, true), words|truncate(12, false, '…', 0), words|wordcount
html|e, html|escape, html|forceescape, (html|safe) + '<', '<' + (html|e), (html|e)|upper, html|e|e, (html|safe)|length|||'%s is %d and %.2f %5s|%-5s|%05d %x %%' % ('a', 3, 2.5, 'b', 'c', 42, 255), '%(a)s' % {'a': 1}, '%r' % 'x', '%s' % none, '%e' % 12345.678, '%g' % 0.0001, '%+d' % 3, '%5.1f|' % 3.14159
'%s-%s'|format(1, 2), '%(x)s'|format(x=3)|||'{} {}'.format(1, 2), '{0} {1} {0}'.format('a', 'b'), '{x}'.format(x=1), '{:>5}|{:<5}|{:^5}'.format('a', 'b', 'c'), '{:05.1f}'.format(3.14159), '{:,}'.format(1234567), '{!r}'.format('a'), '{:x} {:b}'.format(255, 5), '{0[a]}'.format(d), '{{}}'.format(), '{:*^9}'.format('mid'), '{:+}'.format(3), '{:%}'.format(0.25), '{:{}}'.format('a', 4)
[1, 'a', none, true, 1.5, {'k': (1,)}, (1, 2)]|string, {'a': 'it\'s'}, ['"', "'", '\n', '\\', 'é', '\x00', '\u200b']|||items|list|string, range(5)|list, range(2, 10, 3)|list, range(5, 0, -2)|list, range(3), range(0)|list|||dict(a=1, b=2), dict({'x': 1}, y=2), namespace(a=1).a
'a' 'b' "c", 'tab\tnew\nquote\'\x41\u00e9', "\d"|||1_000, 0x1f, 0b101, 0o17, 1.5e3, 2e2|||{'a': 1}['a'], {'a': {'b': [1, 2]}}.a.b[1], [1, 2, 3][1], (1, 2)[0], 'abc'[1], (1,), ()
missing|||missing.x|||missing + 1|||missing == missing, missing|length, missing|list, missing|string|||1 + 'a'|||'a' + 1|||[] + [1]|||{} + {}|||none + 1|||none.x|||s.nope|||s.nope()|||items.append(1)|||d.update({})|||d.pop('a')|||items|nope|||1 is nope|||1 / 0|||5 % 0|||items['a']|||d[none]|||none|length|||1|length|||none|list|||5|join
'abc' is filter, 'upper' is filter, 'odd' is test|||items|map('upper')|list|||[[1, 2], [3]]|sum(start=[])|||items == [3, 1, 2], d == {'a': 1}, (1, 2) == [1, 2], 1 == '1', none == false|||true + true, true * 3, -true, +n, not n|||[1, [2]] in [[1, [2]]], {'a': 1} in [{'a': 1}]
s.upper().lower().title(), s.split()[0].upper(), (s|upper).lower(), s|lower|replace('l', 'L')|||messages[0].content, messages[0]['role'], messages|length, messages[-1].tool_calls[0].function.arguments.a|||messages|map(attribute='role')|join(','), messages|selectattr('role', 'equalto', 'user')|first
tools|map(attribute='name')|sort|join, tools|sort(attribute='on,n')|map(attribute='name')|join, 'x'.join(words.split('two'))|||big * 1000, big // 7, big % 1000|||1.0|int, 1e3|int|||'a' not in 'b' and 'c' in 'cd' or false|||n if n > 5 else f, (n > 5) and 'y' or 'n'|||words.split('two')|map('trim')|list, 'A'.lower() == 'a'
cycler is defined, joiner is defined, namespace is defined|||many[2:8:3], many[-3:], many[:3], many[100:], many[5:2], many[-100:2], many[::-10], many[3::-1]|||'x' if none is none and not missing is defined else 'y'|||d is defined and d.a is defined and d.q is not defined|||'%s' % [1], '%s' % (1,), '%s %s' % ('a', [1])
{'a':1}.items()|list, {'a':1}|items|list, ({}|items)|list|||'é'|urlencode, {'a b': 'c&d'}|urlencode, 'a/b?c'|urlencode|||1500|filesizeformat, 1|filesizeformat, 1048576|filesizeformat(true)|||d|attr('a'), d|attr('items') is callable
'''

TEMPLATES = [
    '{% for x in items %}{{ loop.index }}/{{ loop.length }}:{{ x }}{{ "," if not loop.last }}{% endfor %}',
    '{% for x in items %}{{ loop.first }}{{ loop.last }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.previtem }}{{ loop.nextitem }};{% endfor %}',
    '{% for x in [] %}a{% else %}none{% endfor %}{% for x in items if x > 5 %}a{% else %}filtered{% endfor %}',
    '{% for x in items if x > 1 %}{{ x }}{{ loop.index }}{% endfor %}{{ x }}{{ loop }}',
    '{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}{% for k in d %}{{ k }}{% endfor %}{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}',
    '{% for x in nested recursive %}{{ loop.depth }}{% if x is iterable %}[{{ loop(x) }}]{% else %}{{ x }}{% endif %}{% endfor %}',
    '{% for x in many %}{% if x == 3 %}{% continue %}{% endif %}{% if x > 6 %}{% break %}{% endif %}{{ x }}{% endfor %}',
    '{% for x in items %}{{ loop.cycle("a", "b") }}{{ loop.changed(x > 1) }}{% endfor %}',
    '{% set x = 1 %}{% for i in items %}{% set x = x + i %}{{ x }}{% endfor %}{{ x }}',
    '{% set ns = namespace(x=1, y="a") %}{% for i in items %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}{{ ns.y }}',
    '{% set x %}a{{ n }}b{% endset %}{{ x }}{{ x|length }}{% set y | upper %}abc{{ s }}{% endset %}{{ y }}{% set a, b = 1, 2 %}{{ a }}{{ b }}',
    '{% macro m(a, b=2, c="x") %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }}{{ m(1, 3) }}{{ m(c=5, a=0) }}{{ m() }}',
    '{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, x=3) }}', '{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}',
    '{% macro m(a) %}{{ a }}{% endmacro %}{{ m(b=2) }}', '{% macro m(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}{{ m.name }}{{ m.arguments }}',
    '{% macro wrap(x) %}<{{ caller() }}{{ x }}>{% endmacro %}{% call wrap(1) %}in{{ n }}{% endcall %}',
    '{% macro each(l) %}{% for i in l %}{{ caller(i, loop.index) }}{% endfor %}{% endmacro %}{% call(x, y) each(items) %}[{{ x }}{{ y }}]{% endcall %}',
    '{% macro f(x) %}{% if x > 0 %}{{ x }}{{ f(x - 1) }}{% endif %}{% endmacro %}{{ f(5) }}', '{{ m is defined }}{% macro m() %}{% endmacro %}{{ m is defined }}',
    '{% set v = 1 %}{% macro m() %}{{ v }}{% endmacro %}{% set v = 2 %}{{ m() }}', '{% macro m() %}{% set z = 5 %}{{ z }}{% endmacro %}{{ m() }}{{ z }}',
    '{% filter upper %}abc{{ s }}{% endfilter %}{% filter replace("a", "b")|upper %}aaa{% endfilter %}', '{% with a=1, b=n %}{{ a }}{{ b }}{% set c = 3 %}{% endwith %}{{ a }}{{ c }}',
    '{% if n > 10 %}a{% elif n > 5 %}b{% else %}c{% endif %}{% if not missing %}d{% endif %}{% if false %}{{ 1/0 }}{% endif %}',
    'a\n  {% if t %}\n  b\n  {% endif %}\nc\n', 'a \n {%- if t -%} \n b \n {%- endif -%} \n c', 'a {%+ if t +%}\n b {%- endif %}\n\n c', '  {{ n }}  \n  {{- n -}}  \n  {# c #}\nx', '{#- c -#} x {# multi\nline #} y',
    '{% raw %}{{ x }}{% if %}{% endraw %}{{ n }}', 'x\n  {% raw -%}  {{ a }}  {%- endraw %}\ny', 'line\n\n', 'line\r\nb\rc', '{{ "}}" }}{{ {"a": {"b": 1}}["a"]["b"] }}{{ "{%" }}',
    '{% generation %}x{{ n }}{% endgeneration %}', '{% for m in messages %}{% generation %}{{ m.role }}{% endgeneration %}{% endfor %}', '{% print n %}', '{% block b %}{{ n }}{% endblock %}',
    '{{ raise_exception("no " ~ n) }}', '{% include "x" %}', '{% unknown %}', '{% if %}', '{{ 1 + }}', '{% for %}', '{{ "unclosed }}', '{% if x %}', '{% endif %}', '{{ (1 }}', '{{ [1, 2 }}', '{# open', '{{ a b }}', '{% set %}', '{{ 1 is not }}', '{% set n.x = 1 %}', '{% set s.x = 1 %}',
    '{% set c = cycler("a", "b") %}{{ c.next() }}{{ c.next() }}{{ c.current }}{{ c.next() }}{{ c.reset() }}{{ c.next() }}', '{% set j = joiner(", ") %}{{ j() }}a{{ j() }}b{{ j() }}', '{% for i in range(3) %}{% for j in range(i) %}{{ loop.index }}{{ i }}{% else %}-{% endfor %}{% endfor %}',
    '{% for m in messages %}{{ "<|" ~ m.role ~ "|>" }}{% if m.content is string %}{{ m.content|trim }}{% elif m.tool_calls %}{% for c in m.tool_calls %}{{ c.function.name }}({{ c.function.arguments|tojson }}){% endfor %}{% endif %}\n{% endfor %}',
    '{%- set ns = namespace(found=false) -%}{%- for m in messages[::-1] if not ns.found -%}{%- if m.role == "user" -%}{%- set ns.found = true -%}{{ m.content }}{%- endif -%}{%- endfor -%}',
    '{% set x = items|map("string") %}{{ x|list }}{{ x|list }}', '{% set x = items|map("string") %}{{ x|first }}{{ x|list }}', '{{ items|select("odd") is string }}{{ (items|select("odd"))|length }}', '{% set a = [1] + [2] %}{{ a }}{% set d2 = dict(d, z=1) %}{{ d2.z }}{{ d2.keys()|list }}',
    '{% macro t(p, depth=0) -%}{%- for k, v in p.items() %}\n{{ "  " * depth }}{{ k }}: {% if v is mapping %}{{ t(v, depth + 1) }}{% else %}{{ v }}{% endif %}{% endfor %}{%- endmacro %}{{ t(d) }}', '{{ loop is defined }}{% for x in items %}{{ loop is defined }}{% endfor %}', '{% for x in "héy" %}{{ x }}.{% endfor %}',
    '{% for i in 5 %}{% endfor %}', '{% for i in none %}{% endfor %}', '{% for i in missing %}x{% else %}e{% endfor %}', '{% for a, b in [1] %}{% endfor %}', '{% for a, b in [(1, 2, 3)] %}{% endfor %}', '{% set a, b = [1] %}', '{% break %}', '{{ caller() }}', '{{ n() }}', '{{ s() }}', '{{ range(1000000)|length }}', '{{ "a".b.c }}', '{{ "%d" % "x" }}', '{{ "%s %s" % 1 }}', '{{ "{}".format() }}',
    '{% set x = 5 if false %}{{ x is defined }}[{{ x }}]', '{{ x if x is defined else "u" }}', '{{ n is defined and n > 5 }}', '{{ not n is none }}', '{{ n is not none }}', '{{ 1 is in [1] }}', '{{ n is divisibleby(7) }}', '{{ -n|abs }}', '{{ -1|string ~ "x" }}', '{{ "a"|upper ~ "b"|upper }}', '{{ 1 + 2|string|int }}', '{{ [1,2,3,]|length }}{{ {"a":1,}|length }}{{ range(3,)|list }}',
]


def templates():
    for line in EXPRESSIONS.strip().splitlines():
        for group in line.split('|||'):
            yield '{{ ' + group + ' }}'
            depth, part, quote = 0, '', ''  # each item of a list of expressions alone, too: one refusal hides the others
            for c, previous in zip(group + ',', ' ' + group):
                if quote: quote = '' if c == quote and previous != '\\' else quote
                elif c in '\'"': quote = c
                elif c in '([{': depth += 1
                elif c in ')]}': depth -= 1
                if c == ',' and depth == 0 and not quote:
                    yield '{{ ' + part.strip() + ' }}'
                    part = ''
                else: part += c
    yield from TEMPLATES


ERRORS = (jinja2.exceptions.TemplateError, TypeError, ValueError, ZeroDivisionError, KeyError, IndexError, OverflowError, AttributeError, SyntaxError)


def check_templates(binary, score):
    e = environment()
    with tempfile.TemporaryDirectory() as folder:
        for i, source in enumerate(dict.fromkeys(templates())):
            path = pathlib.Path(folder) / f'{i}.jinja'
            path.write_text(source, encoding='utf-8', newline='')
            try: want = dict(text=e.from_string(source).render(**VARIABLES))
            except ERRORS as error: want = dict(error=str(error))
            got = run(binary, ['render', '--template', str(path), '--jsonl'], [VARIABLES])[0]
            if 'error' in want: score.check(f'template {source!r:.200} must be refused ({want["error"]:.80})', 'error' in got, True)
            else: score.check(f'template {source!r:.200} {got.get("error", "")}', got.get('text'), want['text'])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('binary')
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--texts', type=int, default=60, help='texts per tokenizer')
    options = parser.parse_args()
    score, rng = Score(), random.Random(options.seed)
    check_templates(options.binary, score)
    print(f'templates: {score.all - score.bad} of {score.all}')
    templates_all, templates_bad = score.all, score.bad
    check_tokenizers(options.binary, score, rng, options.texts)
    print(f'tokenizers: {score.all - score.bad - templates_all + templates_bad} of {score.all - templates_all}')
    sys.exit(1 if score.bad else 0)


main()
