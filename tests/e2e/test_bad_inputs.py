"""Whatever a client sends, the answer is a precise 4xx with the error body, and the server goes on."""
import json
import socket

import pytest

from conftest import http

CHAT = '/v1/chat/completions'
COMPLETION = '/v1/completions'
USER = [{'role': 'user', 'content': 'hi'}]

ROWS = [
    (CHAT, b'', 400, 'invalid_json', None),
    (CHAT, b'{', 400, 'invalid_json', None),
    (CHAT, b'[]', 400, 'invalid_json', None),
    (CHAT, b'{"a":NaN}', 400, 'invalid_json', None),
    (CHAT, b'{"model":"tiny-llama","model":"x"}', 400, 'invalid_json', None),
    (CHAT, b'\xff\xfe', 400, 'invalid_json', None),
    (CHAT, b'[' * 100000, 400, 'invalid_json', None),
    (CHAT, {}, 400, 'invalid_value', 'model'),
    (CHAT, {'model': 'tiny-llama'}, 400, 'invalid_value', 'messages'),
    (CHAT, {'model': 'tiny-llama', 'messages': [{'role': 'user', 'content': {}}]}, 400, 'invalid_value', 'messages.[0].content'),
    (CHAT, {'model': 'tiny-llama', 'messages': USER, 'n': 10**9}, 400, 'invalid_value', 'n'),
    (CHAT, {'model': 'tiny-llama', 'messages': USER, 'max_tokens': 2**63}, 400, 'invalid_value', 'max_tokens'),
    (CHAT, {'model': 'tiny-llama', 'messages': USER, 'max_tokens': 5000}, 400, 'context_length_exceeded', 'messages'),
    (CHAT, {'model': 'tiny-llama', 'messages': USER, 'stop': ['x'] * 1000}, 400, 'invalid_value', 'stop'),
    (CHAT, {'model': 'tiny-llama', 'messages': USER, 'logit_bias': {'99999': 1}}, 400, 'invalid_value', 'logit_bias'),
    (CHAT, {'model': 'tiny-llama', 'messages': USER, 'response_format': {'type': 'xml'}}, 400, 'unsupported_value', 'response_format.type'),
    (CHAT, {'model': 'tiny-llama', 'messages': USER, 'tools': [{'type': 'function'}]}, 400, 'invalid_value', 'tools.[0].function'),
    (COMPLETION, {'model': 'tiny-llama', 'prompt': [0, 768]}, 400, 'invalid_value', 'prompt'),
    (COMPLETION, {'model': 'tiny-llama', 'prompt': []}, 400, 'invalid_value', 'prompt'),
    (COMPLETION, {'model': 'tiny-llama', 'prompt': 'x', 'logprobs': 21}, 400, 'invalid_value', 'logprobs'),
    ('/detokenize', {'model': 'tiny-llama', 'tokens': [-1]}, 400, 'invalid_value', 'tokens'),
    ('/tokenize', {'model': 'none', 'prompt': 'x'}, 404, 'model_not_found', 'model'),
    ('/v1/nothing', {}, 404, 'unknown_url', None),
]


@pytest.mark.parametrize('path,body,status,code,param', ROWS)
def test_is_refused_precisely(server, path, body, status, code, param):
    got, _, answer = http(server.url + path, body)
    assert got == status, answer
    assert sorted(answer['error'])[:4] == sorted(answer['error'])[:4] and {'message', 'type', 'param', 'code'} <= set(answer['error'])
    assert (answer['error']['code'], answer['error']['param']) == (code, param), answer
    assert http(server.url + '/health')[0] == 200


def test_wrong_methods_and_types(server):
    status, headers, _ = http(server.url + CHAT)
    assert status == 405 and 'POST' in headers['Allow']
    assert http(server.url + CHAT, b'{}', headers={'Content-Type': 'text/plain'})[0] == 415
    assert http(server.url + '/v1/models', b'{}')[0] == 405


def test_bodies_and_headers_beyond_the_limits(server):
    assert http(server.url + '/health', headers={'X-Long': 'x' * 20000})[0] == 431
    with socket.create_connection(('127.0.0.1', server.port)) as s:
        s.sendall(b'POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Length: 999999999\r\n\r\n')
        assert s.recv(64).startswith(b'HTTP/1.1 413')


def test_a_prompt_that_no_context_can_hold_is_refused_without_being_tokenised(own_server):
    server = own_server()
    text = 'the quick brown fox ' * 1_500_000
    for path, body, param in [(CHAT, {'messages': [{'role': 'user', 'content': text}]}, 'messages'),
                              (COMPLETION, {'prompt': text}, 'prompt'),
                              (COMPLETION, {'prompt': ['hi', text[:10_000_000]]}, 'prompt')]:
        status, _, answer = http(server.url + path, {'model': 'tiny-llama', **body})
        error = answer['error']
        assert (status, error['code'], error['param']) == (400, 'context_length_exceeded', param)
        assert error['message'].startswith(f"This model's maximum context length is {error['n_ctx']} tokens. ")
        assert f"at least {error['n_prompt_tokens']} tokens" in error['message'] and error['n_prompt_tokens'] > 2 * error['n_ctx']
    status, _, answer = http(server.url + '/tokenize', {'model': 'tiny-llama', 'prompt': text})
    assert status == 200 and answer['count'] == len(answer['tokens']) > 10_000_000  # longer than the context is what it is for
    with open(f'/proc/{server.process.pid}/status') as lines:
        peak_kib = next(int(line.split()[1]) for line in lines if line.startswith('VmHWM'))
    assert peak_kib < 800 * 1024  # a list of values for its tokens alone would be that much


def test_cut_off_requests_leave_nothing(server):
    body = json.dumps({'model': 'tiny-llama', 'messages': USER}).encode()
    whole = b'POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n' % len(body) + body
    for length in range(0, len(whole), 7):
        with socket.create_connection(('127.0.0.1', server.port)) as s:
            s.sendall(whole[:length])
    assert http(server.url + '/readyz')[0] == 200
