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

try:
    import jsonschema
except ImportError as missing:
    print(f'skipped: {missing}')
    sys.exit(77)

NAMES = ['a', 'b', 'name', 'é', 'x y', 'quote"', 'back\\', '', 'ab', 'abc']
PATTERNS = ['^[a-c]+$', 'b\\d', '^(foo|ba[rz])?$', '^\\w{1,4}-\\d{2}$', '^[^"x]{2,5}$', '^.{3}$', '^a|b$', '^\\S+@\\S+$', '^"\\\\?$']
FORMATS = ['date', 'time', 'date-time', 'uuid', 'ipv4', 'ipv6', 'email', 'hostname']


def bounds(rng, schema, low_key, high_key, low, high):
    a, b = sorted((rng.randint(low, high), rng.randint(low, high)))
    if rng.random() < 0.6: schema[low_key] = a
    if rng.random() < 0.6: schema[high_key] = b
    return schema


def number(rng, kind):
    schema = {'type': kind}
    scale = rng.choice([1, 1, 10, 1000]) if kind == 'integer' else rng.choice([0.01, 0.5, 1, 100.25])
    a, b = sorted((rng.randint(-50, 50) * scale, rng.randint(-50, 50) * scale))
    b += 2 * scale
    if rng.random() < 0.7: schema[rng.choice(['minimum', 'exclusiveMinimum'])] = a
    if rng.random() < 0.7: schema[rng.choice(['maximum', 'exclusiveMaximum'])] = b
    return schema


def string(rng):
    pick = rng.random()
    if pick < 0.3: return {'type': 'string', 'pattern': rng.choice(PATTERNS)}
    if pick < 0.5: return {'type': 'string', 'format': rng.choice(FORMATS)}
    return bounds(rng, {'type': 'string'}, 'minLength', 'maxLength', 0, 12)


def obj(rng, depth):
    names = rng.sample(NAMES, rng.randint(0, 4))
    schema = {'type': 'object', 'properties': {n: make(rng, depth + 1) for n in names}}
    if names: schema['required'] = rng.sample(names, rng.randint(0, len(names)))
    if rng.random() < 0.3: schema['additionalProperties'] = rng.choice([False, True, {'type': 'integer'}])
    if not names and rng.random() < 0.5:
        schema = bounds(rng, {'type': 'object', 'additionalProperties': make(rng, depth + 1)}, 'minProperties', 'maxProperties', 0, 1)
    return schema


def array(rng, depth):
    schema = bounds(rng, {'type': 'array', 'items': make(rng, depth + 1)}, 'minItems', 'maxItems', 0, 4)
    if rng.random() < 0.3:
        schema = {'type': 'array', 'prefixItems': [make(rng, depth + 1) for _ in range(rng.randint(1, 3))]}
        if rng.random() < 0.5: schema['items'] = rng.choice([False, {'type': 'null'}])
    return schema


def make(rng, depth=0):
    kinds = ['string', 'integer', 'number', 'boolean', 'null', 'enum', 'types']
    if depth < 3: kinds += ['object', 'array'] * 2 + ['anyOf', 'allOf', 'ref']
    kind = rng.choice(kinds if depth else ['object', 'array', 'anyOf', 'allOf'])
    if kind == 'string': return string(rng)
    if kind in ('integer', 'number'): return number(rng, kind)
    if kind == 'enum': return {'enum': rng.sample(['x', 'é"\\', 1, 2.5, None, True, {'k': [1]}, []], rng.randint(1, 4))}
    if kind == 'types': return {'type': rng.sample(['string', 'integer', 'null', 'boolean'], 2)}
    if kind == 'object': return obj(rng, depth)
    if kind == 'array': return array(rng, depth)
    if kind == 'anyOf': return {'anyOf': [make(rng, depth + 1) for _ in range(rng.randint(1, 3))]}
    if kind == 'allOf': return {'allOf': [obj(rng, depth + 1), {'type': 'object', 'required': [rng.choice(NAMES)]}]}
    if kind == 'ref': return {'$ref': '#/$defs/tree'}
    return {'type': kind}


def whole(rng):
    schema = make(rng)
    schema['$defs'] = {'tree': {'type': 'object', 'properties': {'v': {'type': 'integer'}, 'next': {'anyOf': [{'type': 'null'}, {'$ref': '#/$defs/tree'}]}},
                                'required': ['v']}}
    return schema


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
