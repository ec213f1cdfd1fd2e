#!/usr/bin/env python3
"""purity.py LIB.a...: fails if a library refers to a clock, a thread, a socket, a file or the environment.

The libraries that decide (memory, policy, engine, roles ...) are handed values and `now` and give values back; the same
object files run on real machines and in the simulator. What they refer to is read off their undefined symbols.
"""
import re
import subprocess
import sys

FORBIDDEN = [
    ('a clock', r'std::chrono::_V2::(system|steady)_clock::now|(clock_gettime|gettimeofday|time|clock|nanosleep|usleep|sleep)'),
    ('a thread', r'pthread_(create|join|detach|mutex_lock|cond_wait)|std::thread::.*|std::condition_variable.*|'
                 r'std::this_thread::.*|std::__atomic_futex.*|sched_yield'),
    ('a socket', r'socket|connect|bind|listen|accept4?|send(to|msg)?|recv(from|msg)?|epoll_.*|poll|select'),
    ('a file', r'f?open(at)?(64)?|fdopen|fread|fwrite|read|write|mmap(64)?|std::basic_[io]?f(stream|ilebuf)<.*|'
               r'std::filesystem::.*|shoal::read_file\(.*|std::(cout|cerr|clog)'),
    ('the log', r'shoal::(log|configure_log)\(.*'),
    ('the environment', r'(secure_)?getenv'),
    ('chance', r'std::random_device::.*|s?rand(om)?|getrandom'),
]


def impure_symbols(archive):
    """(object file, symbol, what it reaches for) for each symbol that is not allowed."""
    listing = subprocess.run(['nm', '-uC', archive], check=True, capture_output=True, text=True).stdout
    found, member = [], ''
    for line in listing.splitlines():
        if line.endswith(':'):
            member = line[:-1]
            continue
        symbol = re.sub(r'^\s*[Uwv]\s+', '', line).strip()
        symbol = re.sub(r'@+[A-Z_0-9.]+$', '', symbol)
        for what, pattern in FORBIDDEN:
            if symbol and re.fullmatch(pattern, symbol):
                found.append((member, symbol, what))
    return found


def main():
    if len(sys.argv) < 2:
        print(__doc__.strip().splitlines()[0], file=sys.stderr)
        return 2
    bad = 0
    for archive in sys.argv[1:]:
        for member, symbol, what in impure_symbols(archive):
            print(f'{archive}({member}): refers to {what}: {symbol}; hand the value in instead')
            bad += 1
    return 1 if bad else 0


if __name__ == '__main__':
    sys.exit(main())
