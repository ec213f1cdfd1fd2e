#!/usr/bin/env python3
"""Asks a real server for answers to schemas made up here and validates each with the reference library.

usage: schema_oracle.py BINARY MODELS [--seed N] [--schemas N] [--answers N]
Needs PyPI `jsonschema` in the interpreter's environment; without it it says so and exits with 77 (skip).
"""
import argparse
import json
import random
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

from made_schemas import whole

try:
    import jsonschema
except ImportError as missing:
    print(f'skipped: {missing}')
    sys.exit(77)


def ask(url, body):
    request = urllib.request.Request(url + '/v1/completions', json.dumps(body).encode(), {'Content-Type': 'application/json'})
    try:
        with urllib.request.urlopen(request, timeout=120) as answer: return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('binary')
    parser.add_argument('models')
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--schemas', type=int, default=300)
    parser.add_argument('--answers', type=int, default=4)
    parser.add_argument('--model', default='tiny-llama')
    options = parser.parse_args()
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        port = s.getsockname()[1]
    server = subprocess.Popen([options.binary, 'serve', options.models, '--port', str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url = f'http://127.0.0.1:{port}'
    count = dict(schemas=0, refused=0, answers=0, cut=0, wrong=0)
    try:
        for _ in range(600):
            try:
                urllib.request.urlopen(url + '/readyz', timeout=2)
                break
            except OSError:
                time.sleep(0.1)
        rng = random.Random(options.seed)
        for _ in range(options.schemas):
            schema = whole(rng)
            jsonschema.Draft202012Validator.check_schema(schema)
            count['schemas'] += 1
            status, answer = ask(url, dict(model=options.model, prompt='JSON: ', guided_json=schema, n=options.answers, max_tokens=700,
                                           temperature=1.6, seed=rng.randrange(2**31)))
            if status != 200:
                assert status == 400 and answer['error']['code'] == 'invalid_schema', (schema, answer)
                count['refused'] += 1
                continue
            checker = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)
            for choice in answer['choices']:
                if choice['finish_reason'] != 'stop':
                    count['cut'] += 1
                    continue
                count['answers'] += 1
                try:
                    checker.validate(json.loads(choice['text']))
                except (ValueError, jsonschema.ValidationError) as error:
                    count['wrong'] += 1
                    print(json.dumps(schema), '\n ', choice['text'], '\n ', str(error).splitlines()[0])
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait()
    print(json.dumps(count))
    return 1 if count['wrong'] or not count['answers'] else 0


if __name__ == '__main__':
    sys.exit(main())
