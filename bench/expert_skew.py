#!/usr/bin/env python3
"""Which experts real questions go to: rows of each expert as an expert server counts them, by kind of question, for a bundled model.

One line for each kind: rows of a layer's busiest expert over the mean of all (mean and largest of the layers), the share of rows of its four
busiest, and how many of these four are also among the four busiest of all kinds together. Rows of prompts and of answers count alike.
"""
import argparse
import json
import pathlib
import re
import sys
import tempfile
import urllib.request

from experts import ROOT, expert, serving

sys.path.insert(0, str(ROOT / 'tests' / 'e2e'))
from half_writer import connect, opening, read_note, write_note  # noqa: E402

KINDS = [('sums', r'\d+ [-+] \d+|^Add '), ('capitals of countries', r'capital of'), ('days and months', r'day|month'), ('letters of words', r'letters|backwards|Reverse|Uppercase|in capitals'), ('counting', r'^Count from'),
         ('JSON', r'JSON')]
BUSIEST = 4


def ask(url, model, question):
    body = {'model': model, 'messages': [{'role': 'user', 'content': question}], 'temperature': 0, 'max_tokens': 48}
    urllib.request.urlopen(urllib.request.Request(url + '/v1/chat/completions', json.dumps(body).encode(), {'Content-Type': 'application/json'}), timeout=60).read()


def rows_of(address, model):
    """Of each layer, of each expert, since the server began."""
    with connect(address.removeprefix('unix:')) as stream:
        write_note(stream, opening('control'))
        write_note(stream, {'verb': 'status', 'rows': True})
        of = next(m for m in read_note(stream)['models'] if m['name'] == model)
    experts = of['shape']['experts']
    return [of['rows'][at:at + experts] for at in range(0, len(of['rows']), experts)]


def less(after, before):
    return [[a - b for a, b in zip(now, then)] for now, then in zip(after, before)]


def busiest(layer):
    return set(sorted(range(len(layer)), key=lambda expert: -layer[expert])[:BUSIEST])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--models', type=pathlib.Path, default=ROOT / 'models' / 'tiny-qwen3-moe', help='a bundled model with experts')
    flags = parser.parse_args()
    model = flags.models.name
    questions = sorted({answer['question'] for answer in json.loads((flags.models / 'reference_answers.json').read_text())['greedy']})
    counted = []
    with tempfile.TemporaryDirectory() as folder, expert(flags.models, folder, 'e0', '--experts', '*:*', '--threads', '1') as (address, _), serving(flags.models, '--threads', '1', '--experts', address) as (url, _):
        for kind, pattern in KINDS:
            of_kind = [question for question in questions if re.search(pattern, question)]
            before = rows_of(address, model)
            for question in of_kind:
                ask(url, model, question)
            counted.append((kind, len(of_kind), less(rows_of(address, model), before)))
    together = [[sum(experts) for experts in zip(*layers)] for layers in zip(*(rows for _, _, rows in counted))]
    print(f'{model}: {len(together)} layers of {len(together[0])} experts; even routing gives 1.00 and {BUSIEST / len(together[0]):.0%}')
    print(f'{"kind of question":24} {"questions":>9} {"rows":>8} {"busiest over mean":>18} {"largest":>8} {f"of {BUSIEST} busiest":>13} {"the same as of all":>19}')
    for kind, count, rows in [*counted, ('all', sum(count for _, count, _ in counted), together)]:
        skews = [max(layer) * len(layer) / sum(layer) for layer in rows]
        share = sum(sum(sorted(layer)[-BUSIEST:]) / sum(layer) for layer in rows) / len(rows)
        same = sum(len(busiest(layer) & busiest(of_all)) for layer, of_all in zip(rows, together)) / len(rows)
        print(f'{kind:24} {count:9} {sum(map(sum, rows)):8} {sum(skews) / len(skews):18.2f} {max(skews):8.2f} {share:13.0%} {same:19.1f}')


if __name__ == '__main__':
    main()
