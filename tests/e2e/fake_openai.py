"""An OpenAI server that misbehaves on request, for the load generator: the model's name says how."""
import contextlib
import http.server
import json
import socket
import threading
import time

TOKEN = b'data: {"choices":[{"index":0,"text":" a","finish_reason":null}]}\n\n'
END = b'data: {"choices":[{"index":0,"text":"","finish_reason":"length"}]}\n\n'


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'

    def log_message(self, *args):
        pass

    def reply(self, status, body, **headers):
        data = json.dumps(body).encode()
        self.send_response(status)
        for name, value in {'Content-Type': 'application/json', 'Content-Length': str(len(data)), **headers}.items():
            self.send_header(name.replace('_', '-'), value)
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        self.reply(200, {'object': 'list', 'data': [{'id': 'fine'}, {'id': 'other'}]})

    def chunk(self, data):
        self.wfile.write(b'%x\r\n%s\r\n' % (len(data), data))
        self.wfile.flush()

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers['Content-Length'])))
        if self.path == self.server.tokenizer:
            return self.reply(200, {'count': 1 + 2 * len(body['prompt'].split())})
        if self.path != '/v1/completions':
            return self.reply(404, {'error': {'message': 'unknown path'}})
        self.server.seen.append((time.time(), body, dict(self.headers)))
        with contextlib.suppress(OSError):
            self.answer(body)

    def answer(self, body):
        model = body['model']
        if model == 'busy-once':
            first = body['prompt'] not in self.server.refused
            self.server.refused.add(body['prompt'])
            if first:
                return self.reply(429, {'error': {'message': 'slow down'}}, Retry_After='1')
        if model == 'busy':
            return self.reply(503, {'error': {'message': 'no room'}})
        if model == 'rude':
            return self.connection.shutdown(socket.SHUT_RDWR)
        self.send_response(200)
        self.send_header('Content-Type', 'text/event-stream')
        self.send_header('Transfer-Encoding', 'chunked')
        self.end_headers()
        self.chunk(b': ping\n\n')
        for _ in range(body['max_tokens']):
            self.chunk(TOKEN)
            time.sleep(0.5 if model == 'slow' else 0)
        if model == 'cut':
            return self.connection.shutdown(socket.SHUT_RDWR)
        if model == 'error':
            self.chunk(b'data: {"error":{"message":"the node is gone"}}\n\ndata: [DONE]\n\n')
        elif model == 'ends':
            pass
        else:
            self.chunk(END)
            usage = {'prompt_tokens': len(body['prompt'].split()), 'completion_tokens': body['max_tokens']}
            self.chunk(b'data: %s\n\ndata: [DONE]\n\n' % json.dumps({'choices': [], 'usage': usage}).encode())
        self.wfile.write(b'0\r\n\r\n')
        self.close_connection = model == 'closes'  # without a word before


@contextlib.contextmanager
def fake_openai():
    class Server(http.server.ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 128
    server = Server(('127.0.0.1', 0), Handler)
    server.seen, server.refused = [], set()
    server.tokenizer = None  # the path at which tokens are counted, two to a word
    threading.Thread(target=server.serve_forever, daemon=True).start()
    server.url = f'http://127.0.0.1:{server.server_address[1]}'
    yield server
    server.shutdown()
    server.server_close()
