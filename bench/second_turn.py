#!/usr/bin/env python3
"""second_turn.py: how long the second turn of a long chat takes to its first token, beside llama-server of llama.cpp on the same file.

The first turn is a prompt of --tokens random token ids, and up to 15 more, since a length may fall well or badly on blocks of 16. The second is
the first with its own answer and --new ids more (`kept`), or with the new ids only, as where a client leaves the answer's reasoning out (`dropped`); before it --between other chats of the same length come and go.
Both servers run all the time and one of them has work at a time (A B A B); every round has other ids, so that nothing is known but the
chat itself. Medians of --runs.

  bench/second_turn.py --model FILE.gguf --peer-server /opt/llama.cpp/bin/llama-server
"""
import argparse
import json
import os
import pathlib
import random
import statistics
import sys
import time
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import pooling  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[1]


def complete(name, port, ids, answer):
    """-> (seconds to the first token, ids of the answer)"""
    common = {'model': 'bench', 'prompt': ids, 'temperature': 0, 'ignore_eos': True, 'stream': True}
    if name == 'shoal':
        path, body = '/v1/completions', {**common, 'max_tokens': answer, 'logprobs': 1, 'return_tokens_as_token_ids': True}
    else:
        path, body = '/completion', {**common, 'n_predict': answer, 'n_probs': 1, 'cache_prompt': True}
    request = urllib.request.Request(f'http://127.0.0.1:{port}{path}', json.dumps(body).encode(), {'Content-Type': 'application/json'})
    began, first, out = time.perf_counter(), None, []
    with urllib.request.urlopen(request, timeout=600) as lines:
        for line in lines:
            if not line.startswith(b'data: {'):
                continue
            first = first or time.perf_counter() - began
            event = json.loads(line[6:])
            if 'error' in event:
                raise SystemExit(f"{name}: {event['error']}")
            if name != 'shoal':
                out += [one['id'] for one in event.get('completion_probabilities', [])] if not event['stop'] else []
            elif event['choices'] and event['choices'][0].get('logprobs'):
                out += [int(token.split(':')[1]) for token in event['choices'][0]['logprobs']['tokens']]
    if not out:
        raise SystemExit(f'{name}: no tokens came')
    return first, out


def chat(args, name, port, seed):
    """One chat -> seconds to the first token of its first turn, and of its second in both forms."""
    rng = random.Random(seed)
    ids = lambda count: [rng.randrange(*pooling.VOCABULARY) for _ in range(count)]
    prompt, new, other = ids(args.tokens + rng.randrange(16)), ids(args.new), ids(args.new)
    others = [ids(args.tokens) for _ in range(args.between)]
    first, answer = complete(name, port, prompt, args.answer)
    for one in others:
        complete(name, port, one, args.answer)
    kept, _ = complete(name, port, prompt + answer + new, args.answer)
    dropped, _ = complete(name, port, prompt + other, args.answer)
    return {'first': first, 'kept': kept, 'dropped': dropped}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--shoal', default=str(ROOT / 'build' / 'release' / 'shoal'))
    parser.add_argument('--model', required=True)
    parser.add_argument('--peer-server')
    parser.add_argument('--peer-args', default='', help='more options of the peer, separated by spaces')
    parser.add_argument('--threads', type=int, default=os.cpu_count())
    parser.add_argument('--tokens', type=int, default=12_000)
    parser.add_argument('--answer', type=int, default=64)
    parser.add_argument('--new', type=int, default=32)
    parser.add_argument('--between', type=int, default=0)
    parser.add_argument('--runs', type=int, default=3)
    parser.add_argument('--port', type=int, default=18_900)
    parser.add_argument('--log-dir', default='/tmp')
    parser.add_argument('--json', action='store_true')
    args = parser.parse_args()
    context = args.tokens + 16 + 2 * args.answer + args.new + 256
    commands = {'shoal': [args.shoal, 'serve', args.model, '--alias', 'bench', '--config', 'none', '--admin-socket', 'none', '--max-model-len', str(context), '--threads', str(args.threads),
                          '--log-level', 'warning']}
    if args.peer_server:
        commands['peer'] = [args.peer_server, '-m', args.model, '-t', str(args.threads), '-tb', str(args.threads), '-c', str((args.between + 1) * context),
                            '-np', str(args.between + 1), *args.peer_args.split()]
    servers, seconds = {}, {name: [] for name in commands}
    try:
        for name, command in commands.items():
            port = pooling.free_port(args.port)
            servers[name] = pooling.Server(name, [*command, '--host', '127.0.0.1', '--port', str(port)], port, pathlib.Path(args.log_dir) / f'second_turn_{name}.log')
            complete(name, port, list(range(300, 332)), 4)
        for run in range(args.runs):
            for name, server in servers.items():
                seconds[name].append(chat(args, name, server.port, run))
    finally:
        for server in servers.values():
            server.stop()
    medians = {name: {turn: statistics.median(one[turn] for one in runs) for turn in runs[0]} for name, runs in seconds.items()}
    if args.json:
        print(json.dumps({'model': args.model, 'tokens': args.tokens, 'runs': args.runs, 'load_average': os.getloadavg()[0], 'seconds': medians}))
        return
    print(f'{args.model}, {args.tokens} tokens, answers of {args.answer}, {args.between} chats between, medians of {args.runs}, load average {os.getloadavg()[0]:.2f}')
    for turn in ('first', 'kept', 'dropped'):
        row = f'{turn:10}' + ''.join(f'  {name} {one[turn]:8.4f} s' for name, one in medians.items())
        print(row + (f"  {medians['peer'][turn] / medians['shoal'][turn]:6.1f}x" if 'peer' in medians else ''))


if __name__ == '__main__':
    main()
