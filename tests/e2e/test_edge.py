"""The edge as operators and clients of a shared server see it: keys with limits, HTTPS, browsers, the operator's socket."""
import http.client
import json
import os
import pathlib
import shutil
import socket
import ssl
import subprocess
import time

import openai
import pytest
from conftest import BUNDLED, MODELS, Server, http as request, wait_until

PROMPT = {'model': 'tiny-llama', 'prompt': 'The capital of Denmark is', 'max_tokens': 2}


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__('localhost', timeout=30)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(30)
        self.sock.connect(self.path)


def operator(path, method, target, body=None):
    connection = UnixConnection(path)
    connection.request(method, target, None if body is None else json.dumps(body), {'Content-Type': 'application/json'})
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read())


@pytest.fixture(scope='module')
def keyed(tmp_path_factory):
    keys = tmp_path_factory.mktemp('keys') / 'keys.txt'
    keys.write_text('# who may what\nsk-alice name=alice rpm=3 tpm=100000\nsk-bob models=tiny-qwen3\nsk-carol\n')
    server = Server('--api-key-file', str(keys))
    yield server
    server.stop()


def as_user(server, key):
    return openai.OpenAI(base_url=server.url + '/v1', api_key=key, max_retries=0, timeout=60)


def test_a_wrong_key_is_an_authentication_error(keyed):
    with pytest.raises(openai.AuthenticationError) as error:
        as_user(keyed, 'sk-mallory').models.list()
    assert error.value.code == 'invalid_api_key'


def test_a_key_over_its_limit_is_a_rate_limit_error_and_others_go_on(keyed):
    alice = as_user(keyed, 'sk-alice')
    for _ in range(3):
        answer = alice.completions.with_raw_response.create(**PROMPT)
        assert answer.headers['x-ratelimit-limit-requests'] == '3'
    with pytest.raises(openai.RateLimitError) as error:
        alice.completions.create(**PROMPT)
    assert error.value.code == 'rate_limit_exceeded'
    assert 1 <= int(error.value.response.headers['retry-after']) <= 60
    assert as_user(keyed, 'sk-carol').completions.create(**PROMPT).choices[0].text
    assert 'sk-' not in keyed.output()
    assert 'key=alice' in keyed.output()


def test_a_key_sees_and_uses_its_own_models_only(keyed):
    bob = as_user(keyed, 'sk-bob')
    assert [model.id for model in bob.models.list()] == ['tiny-qwen3']
    with pytest.raises(openai.PermissionDeniedError) as error:
        bob.completions.create(**PROMPT)
    assert error.value.code == 'model_forbidden'


def test_https_streams_to_the_openai_client(tmp_path, own_server):
    if not shutil.which('openssl'):
        pytest.skip('no openssl command to make a certificate')
    subprocess.run(['openssl', 'req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-keyout', 'key.pem', '-out', 'cert.pem', '-days', '2',
                    '-subj', '/CN=localhost', '-addext', 'subjectAltName=DNS:localhost,IP:127.0.0.1'], cwd=tmp_path, check=True,
                   capture_output=True)
    # The fixture asks /readyz over plain HTTP: start by hand, and wait for the line that says it serves.
    log = open(tmp_path / 'log', 'w+')
    process = subprocess.Popen([os.environ['SHOAL_BINARY'], 'serve', str(MODELS), '--port', '0', '--ssl-certfile', str(tmp_path / 'cert.pem'),
                                '--ssl-keyfile', str(tmp_path / 'key.pem'), '--admin-socket', 'none'], stdout=log, stderr=log)
    try:
        text = lambda: pathlib.Path(log.name).read_text()  # noqa: E731
        assert wait_until(lambda: ' at https://127.0.0.1:' in text() and 'Try it' in text(), 30), text()
        url = text().split(' at ')[1].split()[0]
        for http2, spoken in ((False, 'HTTP/1.1'), (True, 'HTTP/2')):
            client = openai.OpenAI(base_url=url + '/v1', api_key='x', max_retries=0, http_client=openai.DefaultHttpxClient(
                http2=http2, verify=ssl.create_default_context(cafile=tmp_path / 'cert.pem')))
            asked = dict(model='tiny-llama', messages=[{'role': 'user', 'content': 'hi'}], max_tokens=20, temperature=0)
            whole = client.chat.completions.with_raw_response.create(**asked)
            assert whole.http_response.http_version == spoken
            pieces = client.chat.completions.create(**asked, stream=True)
            assert ''.join(chunk.choices[0].delta.content or '' for chunk in pieces) == whole.parse().choices[0].message.content
    finally:
        process.terminate()
        assert process.wait(30) == 0


def test_a_browser_page_of_an_allowed_origin_may_call(own_server):
    server = own_server('--cors-origins', 'https://chat.example')
    headers = {'Origin': 'https://chat.example', 'Access-Control-Request-Method': 'POST', 'Access-Control-Request-Headers': 'content-type'}
    status, answer, _ = request(server.url + '/v1/chat/completions', headers=headers, method='OPTIONS')
    assert status == 204 and answer['Access-Control-Allow-Origin'] == 'https://chat.example'
    status, answer, _ = request(server.url + '/v1/completions', PROMPT, {'Origin': 'https://evil.example'})
    assert status == 200 and 'Access-Control-Allow-Origin' not in answer


def test_the_operator_loads_unloads_and_stops_by_a_private_socket(tmp_path, own_server):
    path = str(tmp_path / 'admin.sock')
    server = own_server('--admin-socket', path)
    assert os.stat(path).st_mode & 0o077 == 0
    states = lambda: {m['id']: m['status']['value'] for m in operator(path, 'GET', '/models')[1]['data']}  # noqa: E731
    assert states() == {name: 'unloaded' for name in BUNDLED}
    assert operator(path, 'POST', '/models/load', {'model': 'tiny-llama', 'wait': True})[0] == 200
    assert states()['tiny-llama'] == 'loaded'
    assert operator(path, 'POST', '/models/unload', {'model': 'tiny-llama'})[1]['success'] is True
    assert wait_until(lambda: states()['tiny-llama'] == 'unloaded')
    assert operator(path, 'POST', '/models/load', {'model': 'nope'})[1]['error']['code'] == 'model_not_found'
    assert request(server.url + '/models/load', {'model': 'tiny-llama'})[0] in (404, 405), 'the public listener knows no such thing'
    assert operator(path, 'POST', '/admin/shutdown', {})[0] == 202
    assert server.process.wait(20) == 0
    assert not os.path.exists(path)


def test_unloading_never_ends_a_running_answer(tmp_path, own_server):
    path = str(tmp_path / 'admin.sock')
    server = own_server('--admin-socket', path)
    stream = server.client().completions.create(model='tiny-llama', prompt='Once upon a time', max_tokens=400, temperature=0, stream=True,
                                                extra_body={'ignore_eos': True})
    pieces = [next(iter(stream)).choices[0].text]
    operator(path, 'POST', '/models/unload', {'model': 'tiny-llama'})
    finish = None
    for chunk in stream:
        pieces.append(chunk.choices[0].text)
        finish = chunk.choices[0].finish_reason or finish
    assert finish == 'length'
    again = server.client().completions.create(model='tiny-llama', prompt='Once upon a time', max_tokens=400, temperature=0,
                                               extra_body={'ignore_eos': True})
    assert ''.join(pieces) == again.choices[0].text


def test_flags_that_make_no_sense_are_refused_with_the_reason(tmp_path):
    for flags, word in ((['--ssl-certfile', 'x'], '--ssl-keyfile'), (['--admin-port', '0'], '--admin-key'),
                        (['--cors-origins', 'chat.example'], 'origin'), (['--api-key', 'a rpm=x'], 'rpm=x')):
        ran = subprocess.run([os.environ['SHOAL_BINARY'], 'serve', str(MODELS), *flags], capture_output=True, text=True, timeout=30)
        assert ran.returncode == 1 and word in ran.stderr, (flags, ran.stderr)
    started = time.time()
    ran = subprocess.run([os.environ['SHOAL_BINARY'], 'serve', str(MODELS), '--port', '0', '--ssl-certfile', __file__, '--ssl-keyfile', __file__],
                         capture_output=True, text=True, timeout=60)
    assert ran.returncode == 1 and 'PEM' in ran.stderr and time.time() - started < 50
