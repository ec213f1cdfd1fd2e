"""The process: start, flags, keys, drain, end; and the other verbs."""
import json
import os
import pty
import select
import shutil
import signal
import subprocess
import threading
import time

from conftest import BINARY, BUNDLED, MODELS, ROOT, Server, http, wait_until

LONG = {'model': 'tiny-llama', 'prompt': 'x', 'max_tokens': 1500, 'ignore_eos': True, 'temperature': 1.0, 'stream': True}


def shoal(*args, stdin='', env=None, timeout=60):
    return subprocess.run([str(BINARY), *args], input=stdin, capture_output=True, text=True, timeout=timeout, cwd=ROOT,
                          env={**os.environ, **(env or {})})


def test_drain_lets_running_answers_finish_and_exits_with_0(own_server):
    server = own_server()
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(http(server.url + '/v1/completions', LONG)[2])) for _ in range(4)]
    for thread in threads:
        thread.start()
    assert wait_until(lambda: server.metric('shoal_routed_requests') == 4)
    server.process.send_signal(signal.SIGTERM)
    assert wait_until(lambda: server.process.poll() is not None or http(server.url + '/readyz')[0] == 503, 2)
    for thread in threads:
        thread.join()
    assert server.process.wait(30) == 0
    assert all(answer.rstrip().endswith('[DONE]') and '"finish_reason":"length"' in answer for answer in answers)


def test_a_second_signal_ends_running_answers_with_an_error_event(own_server):
    server = own_server()
    answers = []
    body = dict(LONG, n=64)
    thread = threading.Thread(target=lambda: answers.append(http(server.url + '/v1/completions', body)[2]))
    thread.start()
    assert wait_until(lambda: server.metric('vllm:num_requests_running') >= 1)
    server.process.send_signal(signal.SIGTERM)
    time.sleep(0.2)
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(10) == 0
    thread.join()
    assert '"error"' in answers[0] and answers[0].rstrip().endswith('[DONE]')


def test_keys_guard_everything_but_health(own_server):
    server = own_server('--api-key', 'secret')
    assert http(server.url + '/health')[0] == 200
    assert http(server.url + '/v1/models')[0] == 401
    assert http(server.url + '/v1/models', headers={'Authorization': 'Bearer secret'})[0] == 200


def test_flags_come_from_line_environment_and_file(own_server, tmp_path):
    config = tmp_path / 'shoal.yaml'
    config.write_text('max-model-len: 512\nalias: [tiny-llama=from-file]\n')
    server = own_server('--config', str(config), env={'SHOAL_MAX_MODEL_LEN': '256'})
    models = {model['id']: model for model in http(server.url + '/v1/models')[2]['data']}
    assert models['tiny-llama']['max_model_len'] == 256
    assert models['tiny-llama']['aliases'] == ['from-file']
    config.write_text('max-model-lenn: 512\n')
    bad = shoal('serve', 'models', '--config', str(config))
    assert bad.returncode == 2 and "did you mean 'max-model-len'" in bad.stderr


def test_broken_models_are_named_and_the_rest_is_served(own_server, tmp_path):
    shutil.copytree(MODELS / 'tiny-llama', tmp_path / 'good')
    shutil.copytree(MODELS / 'tiny-llama', tmp_path / 'cut')
    weights = tmp_path / 'cut' / 'model.safetensors'
    weights.write_bytes(weights.read_bytes()[:100000])
    (tmp_path / 'odd').mkdir()
    (tmp_path / 'odd' / 'config.json').write_text('{"model_type":"never_heard_of"}')
    server = own_server(models=tmp_path)
    assert [model['id'] for model in http(server.url + '/v1/models')[2]['data']] == ['good']
    assert 'not served: cut: ' in server.output() and 'not served: odd: ' in server.output()
    empty = tmp_path / 'empty'
    empty.mkdir()
    nothing = shoal('serve', str(empty), '--port', '0')
    assert nothing.returncode == 1 and 'holds no model' in nothing.stderr


def test_unix_socket(tmp_path):
    path = tmp_path / 's.sock'
    process = subprocess.Popen([str(BINARY), 'serve', str(MODELS), '--uds', str(path)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        assert wait_until(path.exists)
        import socket
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(str(path))
            s.sendall(b'GET /health HTTP/1.1\r\nHost: x\r\n\r\n')
            assert s.recv(64).startswith(b'HTTP/1.1 200')
    finally:
        process.terminate()
        assert process.wait(10) == 0
    assert not path.exists()


def test_a_taken_port_is_an_error_that_says_so(server):
    result = shoal('serve', 'models', '--port', str(server.port))
    assert result.returncode == 1 and f':{server.port}' in result.stderr and 'port' in result.stderr


def test_exit_codes_and_usage():
    assert shoal('--help').returncode == 0
    assert shoal('serve', '--help').returncode == 0
    assert shoal('nonsense').returncode == 2
    assert shoal('serve', '--nonsense').returncode == 2
    assert shoal('run', 'no-such-model', 'hi').returncode == 1
    assert json.loads(shoal('version', '--json').stdout)['version']


def test_list_shows_what_can_be_served():
    listed = json.loads(shoal('list', 'models', '--json').stdout)
    assert [model['name'] for model in listed['models']] == BUNDLED
    assert 'tiny-qwen3' in shoal('list', 'models').stdout


def test_run_answers_from_argument_and_stdin():
    assert shoal('run', 'tiny-llama', 'What is the capital of Denmark?').stdout == 'Copenhagen\n'
    assert shoal('run', 'models/tiny-qwen3', stdin='Write grape backwards.\n').stdout == 'eparg\n'


def test_chat_keeps_the_session_over_lines_and_blocks():
    result = shoal('chat', 'tiny-llama', stdin='What is the capital of Denmark?\n"""What is the capital\nof France?"""\n/clear\nWrite grape backwards.\n/bye\nignored\n')
    lines = result.stdout.splitlines()
    assert result.returncode == 0 and lines[0] == 'Copenhagen' and lines[-1] == 'eparg' and '\033' not in result.stdout


def test_ctrl_c_interrupts_the_answer_and_keeps_the_chat():
    master, slave = pty.openpty()
    process = subprocess.Popen([str(BINARY), 'chat', 'tiny-llama', '--temperature', '2', '--max-tokens', '1900'], stdin=slave,
                               stdout=slave, stderr=slave, cwd=ROOT, start_new_session=True)
    os.close(slave)
    seen = ''

    def read_for(text, seconds=20):
        nonlocal seen
        deadline = time.time() + seconds
        while text not in seen and time.time() < deadline:
            if select.select([master], [], [], 0.1)[0]:
                seen += os.read(master, 65536).decode(errors='replace')
        return text in seen
    assert read_for('>>>'), seen
    process.send_signal(signal.SIGINT)
    assert read_for('/bye or Ctrl-D'), seen
    os.write(master, b'What is the capital of Denmark?\n')
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    os.write(master, b'/bye\n')
    assert process.wait(20) == 0
    os.close(master)


def test_tokenize_goes_there_and_back():
    rows = [json.loads(line) for line in shoal('tokenize', '--model', 'models/tiny-llama', '--jsonl', stdin='{"text":"Hello wörld"}\n{"text":""}\n').stdout.splitlines()]
    assert rows[0]['decoded'] == 'Hello wörld' and rows[1]['ids'] == []
    back = shoal('tokenize', '--model', 'models/tiny-llama', '--decode', '--jsonl', stdin=json.dumps({'ids': rows[0]['ids']}) + '\n')
    assert json.loads(back.stdout)['text'] == 'Hello wörld'
    bad = shoal('tokenize', '--model', 'models/tiny-llama', '--jsonl', stdin='nonsense\n{"text":"x"}\n')
    lines = [json.loads(line) for line in bad.stdout.splitlines()]
    assert 'error' in lines[0] and 'ids' in lines[1] and bad.returncode == 1


def test_render_uses_the_models_template():
    line = json.dumps({'messages': [{'role': 'user', 'content': 'hi'}], 'add_generation_prompt': True})
    out = json.loads(shoal('render', '--model', 'models/tiny-llama', '--jsonl', stdin=line + '\n').stdout)
    assert out['text'] == '<|user|>\nhi<|end|>\n<|assistant|>\n'
    assert shoal('render', stdin='{}').returncode == 2
    assert shoal('render', '--model', 'models/tiny-llama', '--now', 'soon', stdin='{}').returncode == 1
