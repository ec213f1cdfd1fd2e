#!/usr/bin/env python3
"""convert_events.py OLD NEW: a run that was recorded as lines of JSON (`shoal serve --record-events`, before version 2 of the
form) as records, for `shoal simulate --replay NEW`. What was decided stays word for word, so a replay compares what it would
have compared then."""
import base64
import json
import struct
import sys

HEAD = b'shoal events 2\n'
SETTINGS = {'ttft': 2, 'tbt': 3, 'priority': 4, 'pinned': 5, 'idle_ttl': 6, 'max_wait': 7}  # numbers of base/pooling_settings.cc


def varint(x):
    x &= (1 << 64) - 1
    out = bytearray()
    while x >= 0x80:
        out.append(x & 0x7f | 0x80)
        x >>= 7
    return bytes(out + bytes([x]))


def number(field, x):
    return varint(field << 3) + varint(int(x))


def signed(field, x):
    return number(field, (x << 1) ^ (x >> 63))


def double(field, x):
    return varint(field << 3 | 1) + struct.pack('<d', x)


def fixed64(field, x):
    return varint(field << 3 | 1) + struct.pack('<Q', x)


def fixed32(field, bits):
    return varint(field << 3 | 5) + struct.pack('<I', bits)


def block(field, data):
    data = data.encode() if isinstance(data, str) else data
    return varint(field << 3 | 2) + varint(len(data)) + data


def numbers(fields, values):
    return b''.join(number(field, value) for field, value in zip(fields, values))


def settings(field, values):
    return b''.join(block(field, number(1, SETTINGS[key]) + signed(2, int(value))) for key, value in values.items())


def model(m):
    return (number(1, m['model']) + block(2, m['name']) + number(3, m['weight_bytes']) + number(4, m['kv_block_bytes']) + number(5, m['max_model_len']) +
            number(6, m['vocab_size']) + number(7, m['kv_salt_above']) +
            settings(8, {**m['slo'], **{key: m[key] for key in ('priority', 'pinned', 'idle_ttl', 'max_wait')}}) + block(9, m['costs']))


def config(c):
    limits, turns, prompts = c['limits'], c['turns'], c['prompts']
    return (number(1, c['self']) + number(2, c['duty']) + number(3, c['pages']) + number(4, c['workspace_bytes']) + number(5, c['host_pages']) +
            b''.join(block(6, model(m)) for m in c['models']) + b''.join(number(7, g) for g in c['gateways']) +
            numbers(range(8, 13), [limits[k] for k in ('tokens_per_step', 'sequences_max', 'logit_rows_max', 'admit', 'admissions_max')]) +
            number(13, c['prompt_tokens_min']) + double(14, c['gap_stretch']) + number(15, c['waiting_max']) + number(16, c['prefix_cache']) +
            number(17, c['scheduling']) + double(18, turns['quota_max_seconds']) +
            numbers(range(19, 24), [turns[k] for k in ('least_slack_first', 'enter_running_round', 'end_early', 'recompute', 'cover_switch')]) +
            number(24, prompts['group_max']) + number(25, prompts['age_guard']) + signed(26, c['switching']['hold_after']) +
            double(27, c['load_bytes_per_second']) + signed(28, c['status_interval']) + signed(29, c['offer_time']))


def fields_of(data):
    """(field, wire type, value) of a message; values of length-delimited fields as bytes."""
    at = 0

    def read():
        nonlocal at
        x = shift = 0
        while True:
            byte = data[at]
            at += 1
            x |= (byte & 0x7f) << shift
            shift += 7
            if byte < 0x80:
                return x
    while at < len(data):
        tag = read()
        size = {1: 8, 5: 4}.get(tag & 7) or (read() if tag & 7 == 2 else 0)
        value = data[at:at + size] if size or tag & 7 == 2 else read()
        at += size
        yield tag >> 3, tag & 7, value


def message(data):
    """As it crossed; a Configure had a field for each setting."""
    if not data.startswith(varint(6 << 3 | 2)):
        return data
    [(_, _, inner)] = fields_of(data)
    out = b''
    for field, _, value in fields_of(inner):
        zigzag = field == 4  # the priority, which was signed before as well
        out += number(1, value) if field == 1 else block(8, number(1, field) + (number(2, value) if zigzag else signed(2, value)))
    return block(6, out)


def request(r):
    gateway, life, sequence = r if isinstance(r, list) else (0, 0, r)
    return fixed64(1, sequence) + number(2, gateway) + number(3, life)


def token(t):
    top = b''.join(block(3, signed(1, i) + fixed32(2, bits)) for i, bits in t[2])
    return signed(1, t[0]) + fixed32(2, t[1]) + top + number(4, t[3] if len(t) > 3 else 0) + (fixed32(5, t[4]) if len(t) > 4 else b'')


def failure(field, status):
    return block(field, number(1, status[0]) + block(2, status[1])) if status[0] else b''


def slice_result(s):
    return (request(s[0]) + number(4, s[1]) + number(5, s[2]) + failure(6, s[3]) + b''.join(block(7, token(t)) for t in s[4]) +
            b''.join(block(8, token(t)) for t in s[5]))


def load_end(e):
    names = ('unmap_seconds', 'map_seconds', 'open_seconds', 'read_seconds', 'repack_seconds')
    stages = b''.join(double(i + 1, e[3][name]) for i, name in enumerate(names)) + number(6, e[3]['bytes_read']) + number(7, e[3]['bytes_written'])
    return number(1, e[1]) + failure(2, e[2]) + block(3, stages)


def member(m):
    return number(1, m[0]) + number(2, m[1]) + number(3, m[2]) + b''.join(number(4, x) for x in m[4]) + number(5, m[3])


EVENTS = {
    'message': lambda e: block(1, number(1, e[1]) + block(2, message(base64.b64decode(e[2])))),
    'step': lambda e: block(2, number(1, e[1]) + number(2, e[2]) + b''.join(block(3, slice_result(s)) for s in e[3]) + (failure(4, e[4]) if len(e) > 4 else b'')),
    'weights': lambda e: block(3, load_end(e) + fixed64(4, e[4]) + number(5, e[5])),
    'packed': lambda e: block(4, load_end(e)),
    'copied': lambda e: block(5, number(1, e[1]) + number(2, e[2]) + number(3, e[3])),
    'progress': lambda e: block(6, number(1, e[1]) + varint(2 << 3 | 5) + struct.pack('<f', e[2])),
    'cluster': lambda e: block(7, number(1, e[1]) + b''.join(block(2, member(m)) for m in e[2])),
    'add': lambda e: block(8, model(e[1])),
    'retire': lambda e: number(9, e[1]),
    'drain': lambda e: block(10, b''),
    'tick': lambda e: block(11, b''),
}


def records(lines):
    changes = {}  # by node: a model that came or went on a line of its own, and is heard of at the next tick
    for line in lines:
        node = line['node']
        if 'config' in line:
            yield number(1, node) + block(2, config(line['config']))
        elif 'event' not in line:
            changes[node] = ['add', line['add']] if 'add' in line else ['retire', line['retire']]
        else:
            event = changes.pop(node, line['event'])
            yield number(1, node) + block(3, EVENTS[event[0]](event)) + signed(4, line['now']) + b''.join(block(5, text) for text in line['effects'])


def whole_lines(file):
    for text in file:
        if not text.endswith('}\n'):  # the recording server ended within this line
            return
        yield json.loads(text)


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    with open(sys.argv[1], encoding='utf-8') as old, open(sys.argv[2], 'wb') as new:
        new.write(HEAD)
        for record in records(whole_lines(old)):
            new.write(varint(len(record)) + record)


if __name__ == '__main__':
    main()
