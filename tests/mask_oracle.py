#!/usr/bin/env python3
"""Compares Shoal's token masks with those of XGrammar, bit by bit along random walks through grammars made up here.

usage: mask_oracle.py MASKS TOKENIZER [TOKENIZER ...] [--seed N] [--grammars N]
MASKS is the program of tests/masks; a TOKENIZER a folder with a tokenizer.json or a GGUF file. Needs PyPI `xgrammar`
and `jsonschema` in the interpreter's environment; without them it says so and exits with 77 (skip). The masks need neither
torch nor a GPU: CONTRIBUTING.md has what is enough.

Two comparisons:
  same grammar   XGrammar reads the GBNF that Shoal made of a schema or expression, or that is written here. The masks
                 must be equal at every position, and so must the places where the answer may end.
  own grammar    XGrammar reads the schema or expression itself, and means a little more or less by it. Where only one
                 side takes a token, that side completes the text, and a validator of schemas says who is right. Shoal
                 may take less than is valid where PARTS says so, and never more.
"""
import argparse
import collections
import json
import random
import re
import subprocess
import sys
from unittest import mock

from made_schemas import whole

try:
    import jsonschema
    import numpy
    import tvm_ffi  # before the stand-ins: it would take them for the real ones
    for heavy in ('torch', 'transformers'):  # what XGrammar asks of them at import are names of types
        try: __import__(heavy)
        except ImportError: sys.modules[heavy] = mock.MagicMock()
    import xgrammar
except ImportError as missing:
    print(f'skipped: {missing}')
    sys.exit(77)

GRAMMARS = [
    r'root ::= "a" b* | "ab" c' '\n' r'b ::= [a-z] | "é"{2,}' '\n' r'c ::= "b" c? "d"',
    r'root ::= (word " ")* word' '\n' r'word ::= [a-zA-Zäöü]+ | [0-9]{1,3} ("," [0-9]{3})*',
    r'root ::= expr' '\n' r'expr ::= term (" " [-+*/] " " term)*' '\n' r'term ::= [0-9]+ | "(" expr ")"',
    r'root ::= [^\x00-\x1F"\\]{0,20} "\n" [ \t]{2,4} "日本" [一-龥]* "🙂"?',
    r'root ::= item{2,5}' '\n' r'item ::= "- " ([^\n#] | "#" [0-9a-f]{6})* "\n"',
    r'root ::= "{" pair ("," pair)* "}"' '\n' r'pair ::= "\"" [a-z]{1,8} "\":" ("true" | "false" | "null" | "{" pair? "}")',
    r'root ::= ("a" | "aa" | "aaa"){3,7} "b"',
    r'root ::= x y z' '\n' r'x ::= "" | "x" x' '\n' r'y ::= "y"?' '\n' r'z ::= "z"*',
]


class Shoal:
    """A running MASKS."""
    def __init__(self, program, path):
        self.process = subprocess.Popen([program, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.tokens = [bytes.fromhex(t) for t in json.loads(self.process.stdout.readline())['tokens']]

    def ask(self, line):
        print(json.dumps(line), file=self.process.stdin, flush=True)
        answer = json.loads(self.process.stdout.readline())
        if 'mask' in answer:
            bits = numpy.frombuffer(bytes.fromhex(answer['mask']), dtype=numpy.uint8)
            answer['mask'] = numpy.unpackbits(bits, bitorder='little')[:len(self.tokens)].astype(bool)
        return answer


class Reference:
    """XGrammar over the same vocabulary, and a stop token after it."""
    def __init__(self, tokens):
        self.size = len(tokens)
        self.info = xgrammar.TokenizerInfo(tokens + [b'</stop>'], vocab_type=xgrammar.VocabType.RAW, stop_token_ids=[self.size])
        self.compiler = xgrammar.GrammarCompiler(self.info, max_threads=1)
        self.words = numpy.zeros((1, (self.size + 32) // 32), dtype=numpy.int32)

    def begin(self, grammar):
        self.matcher = xgrammar.GrammarMatcher(self.compiler.compile_grammar(grammar))

    def mask(self, matcher=None):
        """The tokens that may come, and whether the end may."""
        self.words.fill(-1)
        (matcher or self.matcher).fill_next_token_bitmask(self.words)
        bits = numpy.unpackbits(self.words.view(numpy.uint8), bitorder='little')[:self.size + 1].astype(bool)
        return bits[:self.size], bool(bits[self.size])


def regex(rng):
    """Not too long: XGrammar takes for ever over some that are."""
    while len(text := alternatives(rng)) > 60: pass
    return text


def alternatives(rng, depth=0):
    atoms = ['a', 'b', 'xy', '[a-c]', '[^ab]', r'\d', r'\w', 'é', '[一-龥]', r'\.', '[0-9a-fA-F]', ' ']
    pick = lambda: rng.choice(atoms) if depth > 1 or rng.random() < 0.6 else '(' + alternatives(rng, depth + 1) + ')'
    quantified = lambda: pick() + rng.choice(['', '', '', '?', '*', '+', '{2}', '{1,3}', '{2,}'])
    alternative = lambda: ''.join(quantified() for _ in range(rng.randint(1, 4)))
    return '|'.join(alternative() for _ in range(rng.choice([1, 1, 2, 3])))


def gbnf(rng):
    """Rules that only mention later ones, or themselves at their end."""
    count = rng.randint(1, 5)
    def item(i, depth=0):
        kind = rng.random() * (1 if depth < 2 else 0.85)
        if kind < 0.35: return json.dumps(rng.choice(['a', 'ab', 'abc', ' ', '{"', '": ', 'é', '日本', '\n', 'the ', 'true']), ensure_ascii=False)
        if kind < 0.65: return rng.choice(['[a-z]', '[^a-z]', '[0-9]', '[^"\\\\\\n]', '[äöü]', '[一-龥]', '[ \\t\\n]', '[A-Za-z_]'])
        if kind < 0.85 and i + 1 < count: return f'r{rng.randint(i + 1, count - 1)}'
        if kind < 0.85: return '[0-9a-f]'
        return '(' + ' | '.join(sequence(i, 2, depth + 1) for _ in range(rng.randint(1, 3))) + ')'
    def sequence(i, most=4, depth=0):
        return ' '.join(item(i, depth) + rng.choice(['', '', '', '?', '*', '+', '{1,3}', '{2}', '{0,12}', '{2,}']) for _ in range(rng.randint(1, most)))
    rules = []
    for i in range(count):
        body = ' | '.join(sequence(i) for _ in range(rng.choice([1, 1, 2, 3])))
        if rng.random() < 0.3: body += f' | {item(i)} r{i}'
        rules.append(f'r{i} ::= {body}')
    return '\n'.join(['root ::= r0', *rules])


class Comparison:
    """Walks through one grammar on both sides. `judge` names the reason why a token is in one mask only, or None."""
    def __init__(self, shoal, reference, rng, counts):
        self.shoal, self.reference, self.rng, self.counts = shoal, reference, rng, counts
        self.closing = [id for id, token in enumerate(shoal.tokens) if token in (b'"', b'}', b']', b'0', b'1', b'"}')]

    def walks(self, what, line, grammar_of, judge, count=3, steps=60):
        for _ in range(count):
            ours = self.shoal.ask(line)
            if 'error' in ours:
                self.counts['refused by Shoal'] += 1
                return
            try: self.reference.begin(grammar_of(ours['gbnf']))
            except RuntimeError:
                self.counts['refused by XGrammar'] += 1
                return
            self.walk(what, line, ours, judge, steps)

    def walk(self, what, line, ours, judge, steps):
        self.line, self.taken, text = line, [], b''
        for _ in range(steps):
            theirs, may_end = self.reference.mask()
            self.counts['positions'] += 1
            differ = numpy.nonzero(ours['mask'] != theirs)[0]
            reasons = collections.defaultdict(list)
            for id in self.rng.sample(list(differ), min(len(differ), 12)):
                reasons[self.reason(judge, text, int(id), bool(ours['mask'][id]))].append('-+'[int(ours['mask'][id])] + repr(self.shoal.tokens[id])[1:])
            if ours['may_end'] != may_end: reasons[judge(self, text, None, ours['may_end'])].append('-+'[ours['may_end']] + 'end')
            for reason, tokens in reasons.items(): self.tell(reason, what, text, tokens)
            both = numpy.nonzero(ours['mask'] & theirs)[0]
            if not both.size or (ours['may_end'] and self.rng.random() < 0.1): return
            token = int(self.prefer_long(both) if self.rng.random() < 0.5 else self.rng.choice(both))
            text += self.shoal.tokens[token]
            self.taken.append(token)
            ours = self.resume() if len(differ) else self.shoal.ask({'token': token})
            if 'error' in ours or not self.reference.matcher.accept_token(token): return self.tell(None, what, text, ['refused though it is in the mask'])

    def resume(self):
        """Brings Shoal to where the walk is: judges may have taken it elsewhere."""
        answer = self.shoal.ask(self.line)
        for token in self.taken: answer = self.shoal.ask({'token': token})
        return answer

    def reason(self, judge, text, id, here):
        token = self.shoal.tokens[id]
        if re.search(b'\xed[\xa0-\xbf]', (text + token)[-len(token) - 2:]): return 'XGrammar takes UTF-8 of surrogates'
        matcher = self.reference.matcher.fork()
        if here == all(matcher.accept_string(token[i:i + 1]) for i in range(len(token))): return 'XGrammar contradicts itself'
        return judge(self, text, id, here)

    def complete(self, text, id, here):
        """A whole text that one side takes, from `text` and the token on; None if none was found soon."""
        matcher = None if here else self.reference.matcher.fork()
        if here: self.resume()
        for _ in range(150):
            text += self.shoal.tokens[id]
            if here:
                ours = self.shoal.ask({'token': id})
                mask, may_end = ours['mask'], ours['may_end']
            else:
                matcher.accept_token(id)
                mask, may_end = self.reference.mask(matcher)
            if may_end: return text
            allowed = numpy.nonzero(mask)[0]
            if not allowed.size: return None
            closing = [i for i in self.closing if mask[i]]
            id = int(self.rng.choice(closing) if closing and self.rng.random() < 0.9 else self.rng.choice(allowed))
        return None

    def prefer_long(self, ids):
        return max((int(self.rng.choice(ids)) for _ in range(8)), key=lambda id: len(self.shoal.tokens[id]))

    def tell(self, reason, what, text, tokens):
        self.counts[reason or 'UNEXPLAINED'] += len(tokens) if reason else 1
        if reason or self.counts['UNEXPLAINED'] > 8: return
        print(f'DIFFERS {json.dumps(what, ensure_ascii=False)[:600]}\n  after {text[-200:]!r}\n  {len(tokens)} tokens: {" ".join(tokens[:12])}')


def same(compare, text, id, here): return None


# What Shoal takes less of than JSON Schema allows, as text/grammar/json_schema.h says.
PARTS = {
    'more digits than Shoal writes': lambda text, schema: re.search(rb'[0-9.]{17}|[0-9][eE][-+]?[0-9]{3}', text),
    'digits or exponents of bounded numbers': lambda text, schema: 'imum"' in json.dumps(schema) and re.search(rb'[0-9]{16}|[.][0-9]{10}|[0-9][eE]', text),
    'an escape in a name that is not declared': lambda text, schema: re.search(rb'\\[^:]*":', text),
    'escapes of surrogates': lambda text, schema: re.search(rb'\\u[dD][89a-fA-F]', text),
    'an integer with a point': lambda text, schema: '"integer"' in json.dumps(schema) and re.search(rb'[0-9][.]0+[^0-9]|[0-9][eE]', text + b' '),
    'rare forms of a format': lambda text, schema: '"format"' in json.dumps(schema),
}


def by_validator(schema):
    """Who is right where two grammars of one schema differ: a text that the one completes is asked of the validator."""
    checker = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)

    def judge(compare, text, id, here):
        whole_text = text if id is None else compare.complete(text, id, here)
        if whole_text is None: return 'not completed in time'
        try: valid = checker.is_valid(json.loads(whole_text))
        except ValueError: valid = False
        if here: return 'valid, but not in the part that XGrammar takes' if valid else None
        if not valid: return 'XGrammar takes what is not valid'
        return next((reason for reason, holds in PARTS.items() if holds(whole_text, schema)), None)
    return judge


def explicit(schema):
    """The schema with what the sides assume of objects and tuples said aloud."""
    if isinstance(schema, list): return [explicit(item) for item in schema]
    if not isinstance(schema, dict): return schema
    out = {key: explicit(value) for key, value in schema.items()}
    if 'prefixItems' in out: out = {'minItems': len(out['prefixItems']), 'items': False, **out}
    if out.get('type') == 'object' and 'additionalProperties' not in out: out['additionalProperties'] = bool(not out.get('properties'))
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('masks')
    parser.add_argument('tokenizers', nargs='+')
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--grammars', type=int, default=100, help='of each kind, for each tokenizer')
    options = parser.parse_args()
    bad = 0
    for path in options.tokenizers:
        shoal, rng = Shoal(options.masks, path), random.Random(options.seed)
        reference = Reference(shoal.tokens)
        read = xgrammar.Grammar.from_ebnf
        schema_of = lambda schema: xgrammar.Grammar.from_json_schema(json.dumps(schema), any_whitespace=False, separators=(',', ':'))
        for name in ('gbnf', 'schema', 'regex', 'own schema', 'own regex'):
            counts = collections.Counter()
            compare = Comparison(shoal, reference, rng, counts)
            for i in range(options.grammars):
                if name == 'gbnf': given = GRAMMARS[i] if i < len(GRAMMARS) else gbnf(rng)
                else: given = regex(rng) if name.endswith('regex') else explicit(whole(rng))
                line = {name.split()[-1]: given}
                if name == 'own schema': compare.walks(given, line, lambda _: schema_of(given), by_validator(given))
                elif name == 'own regex': compare.walks(given, line, lambda _: xgrammar.Grammar.from_regex(given), same)
                else: compare.walks(given, line, read, same)
            print(f'{path}: {name}: {json.dumps(dict(sorted(counts.items())))}')
            bad += counts['UNEXPLAINED'] + (counts['positions'] == 0)
        shoal.process.stdin.close()
    return 1 if bad else 0


if __name__ == '__main__':
    sys.exit(main())
