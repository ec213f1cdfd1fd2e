"""A client of an expert server that dies in the middle of a write: half_writer.py SOCKET MODEL HIDDEN MODE, where MODE is
half (no control word follows), torn (the word is there and the rest is not whole), or late (the word follows when a line is read; then it waits
for the answer). Says what it did, a word a line, and stays."""
import fcntl
import json
import mmap
import os
import select
import socket
import struct
import sys

NOTE, PAGE, HEAD_AT, PAYLOAD_AT = 0x31455853, 4096, 64, 128
MASK = (1 << 64) - 1


def write_note(stream, note):
    data = json.dumps(note).encode()
    stream.sendall(struct.pack('<IIQ', NOTE, 0, len(data)) + data)


def read_note(stream):
    def exactly(count):
        data = b''
        while len(data) < count:
            piece = stream.recv(count - len(data))
            assert piece, 'the server ended the connection'
            data += piece
        return data
    kind, _, count = struct.unpack('<IIQ', exactly(16))
    assert kind == NOTE
    return json.loads(exactly(count))


def opening(kind):
    return {'shoal': 'experts', 'protocol': 1, 'kind': kind}


def connect(path):
    stream = socket.socket(socket.AF_UNIX)
    stream.connect(path)
    return stream


def checksum(data, seed):
    """As src/slots/message.h says."""
    lanes = [seed + 1, seed + 2, seed + 3, seed + 4]

    def take(lane, word):
        x = ((lane ^ word) * 0x9e3779b97f4a7c15) & MASK
        return (x << 29 | x >> 35) & MASK
    words = [int.from_bytes(data[at:at + 8], 'little') for at in range(0, len(data), 8)]
    for i, word in enumerate(words):
        lanes[i % 4] = take(lanes[i % 4], word)
    total = len(data)
    for lane in lanes:
        total = take(total, lane)
    return total ^ total >> 32


def round_up(x, to):
    return (x + to - 1) // to * to


class Slot:
    """A connection with one lane."""

    def __init__(self, path, model, hidden):
        control = connect(path)
        write_note(control, opening('control'))
        write_note(control, {'verb': 'status'})
        status = next(m for m in read_note(control)['models'] if m['name'] == model)
        self.hidden, self.seq, self.stream = hidden, 0, connect(path)
        write_note(self.stream, {**opening('client'), 'client': 'half-writer', 'pid': os.getpid(), 'model': model, 'stamp': status['stamp'],
                                 'shape': status['shape'], 'hidden': hidden, 'used': 1, 'lanes': 1})
        self.welcome = read_note(self.stream)
        rows = self.welcome['rows_max']
        answers = PAGE + round_up(PAYLOAD_AT + round_up(rows * hidden * 4, 8) + 16, PAGE)
        requests = PAGE + round_up(PAYLOAD_AT + round_up(round_up(rows * 8, 64) + rows * hidden * 4, 8) + 16, PAGE)
        own, self.bell = os.memfd_create('half-writer', os.MFD_ALLOW_SEALING), os.eventfd(0)
        os.ftruncate(own, answers)
        fcntl.fcntl(own, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        self.answers = mmap.mmap(own, answers)
        self.answers[64:68] = struct.pack('<I', 1)  # it sleeps: its bell is rung
        socket.send_fds(self.stream, [b'\0'], [own, self.bell])
        _, theirs, _, _ = socket.recv_fds(self.stream, 1, 2)
        self.requests, self.server_bell = mmap.mmap(theirs[0], requests), theirs[1]

    def write(self, whole):
        """A row of ones for expert 0 of the first layer, but not its control word."""
        self.seq += 1
        epoch = self.welcome['epoch']
        route = struct.pack('<HHf', 0, 0, 1.0).ljust(64, b'\0')
        payload = 64 + self.hidden * 4
        head = struct.pack('<IHHIIIBBHQIIIHHQQ', 0x31515853, 1, 0, 1, 1, self.hidden, 1, 1, 0, self.welcome['client'], self.welcome['version'], 0, self.seq, epoch, 1, 0, payload)
        self.requests[PAGE + HEAD_AT:PAGE + HEAD_AT + 64] = head
        self.requests[PAGE + PAYLOAD_AT:PAGE + PAYLOAD_AT + 64] = route
        at = PAGE + PAYLOAD_AT + 64
        self.requests[at:at + 2 * self.hidden] = struct.pack(f'<{self.hidden // 2}f', *[1.0] * (self.hidden // 2))
        if not whole:
            return
        self.requests[at:at + 4 * self.hidden] = struct.pack(f'<{self.hidden}f', *[1.0] * self.hidden)
        tail = PAGE + PAYLOAD_AT + round_up(payload, 8)
        self.requests[tail:tail + 16] = struct.pack('<IIQ', self.seq, epoch, checksum(head + route, self.seq))

    def publish(self):
        self.requests[PAGE:PAGE + 8] = struct.pack('<Q', self.seq << 32 | self.welcome['epoch'] << 16 | 1 << 8 | 1)
        os.eventfd_write(self.server_bell, 1)

    def answered(self, seconds):
        wanted = self.seq << 32 | self.welcome['epoch'] << 16 | 1 << 8 | 2
        select.select([self.bell], [], [], seconds)
        return struct.unpack('<Q', self.answers[PAGE:PAGE + 8])[0] == wanted


def main():
    _, path, model, hidden, mode = sys.argv
    slot = Slot(path, model, int(hidden))
    slot.write(whole=mode == 'late')
    if mode == 'torn':
        slot.publish()
    print('written', flush=True)
    sys.stdin.readline()
    if mode == 'late':
        slot.publish()
        print('answered' if slot.answered(10) else 'silence', flush=True)
    sys.stdin.read()


if __name__ == '__main__':
    main()
