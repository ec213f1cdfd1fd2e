"""shoal bench, against the real server and against one that misbehaves."""
import json
import os
import pty
import select
import signal
import subprocess
import time

import pytest
from conftest import BINARY, ROOT, free_port, wait_until
from fake_openai import fake_openai

VLLM_KEYS = ['date', 'backend', 'model_id', 'tokenizer_id', 'num_prompts', 'request_rate', 'burstiness', 'max_concurrency', 'duration', 'completed',
             'failed', 'total_input_tokens', 'total_output_tokens', 'request_throughput', 'request_goodput', 'output_throughput',
             'total_token_throughput', *(f'{figure}_{metric}_ms' for figure in ('mean', 'median', 'std', 'p99') for metric in ('ttft', 'tpot', 'itl', 'e2el'))]


@pytest.fixture(scope='module')
def fake():
    with fake_openai() as server:
        yield server


def bench(*args, env=None, timeout=60):
    return subprocess.run([str(BINARY), 'bench', *map(str, args)], capture_output=True, text=True, timeout=timeout, cwd=ROOT,
                          env={**os.environ, **(env or {})})


def figures(*args, code=0, **options):
    result = bench('--json', *args, **options)
    assert result.returncode == code, result.stderr
    return json.loads(result.stdout)


def test_it_measures_the_real_server_under_vllms_names(server, tmp_path):
    result = bench('--base-url', server.url, '--num-prompts', 12, '--request-rate', 40, '--random-input-len', 50, '--random-output-len', 8, '--ignore-eos',
                   '--goodput', 'ttft:60000', '--save-detailed', '--result-dir', tmp_path, '--result-filename', 'run.json', '--metadata', 'version=1')
    assert result.returncode == 0, result.stderr
    assert 'Serving Benchmark Result' in result.stdout and 'Mean TTFT (ms):' in result.stdout
    run = json.loads((tmp_path / 'run.json').read_text())
    assert [key for key in VLLM_KEYS if key not in run] == []
    assert run['completed'] == 12 and run['failed'] == 0 and run['version'] == '1'
    assert run['total_output_tokens'] == 12 * 8 and len(run['ttfts']) == 12
    assert all(45 <= length <= 50 for length in run['input_lens']), run['input_lens']
    assert (tmp_path / 'run.csv').read_text().count('\n') == 13
    assert '</html>' in (tmp_path / 'run.html').read_text()


def test_chat_and_prompt_lengths_by_a_local_tokenizer(server):
    run = figures('--base-url', server.url + '/v1', '--backend', 'openai-chat', '--model', 'tiny-qwen3', '--tokenizer', 'models/tiny-qwen3', '--num-prompts', 3,
                  '--random-input-len', 40, '--random-output-len', 4)
    assert run['completed'] == 3 and run['tokenizer_id'] == 'models/tiny-qwen3' and run['total_input_tokens'] >= 3 * 40


@pytest.mark.parametrize('model, kind', [('busy', 'http_503'), ('rude', 'protocol'), ('cut', 'truncated'), ('ends', 'truncated'), ('error', 'error_event')])
def test_failures_are_counted_by_their_kind(fake, model, kind):
    run = figures('--base-url', fake.url, '--model', model, '--num-prompts', 3, '--random-output-len', 2, code=1)
    assert run['failed'] == 3 and run['failures'] == {kind: 3}


def test_a_kept_connection_that_the_server_closed_is_tried_anew(fake):
    run = figures('--base-url', fake.url, '--model', 'closes', '--num-prompts', 6, '--random-output-len', 2, '--max-concurrency', 1)
    assert run['completed'] == 6


def test_a_request_that_takes_too_long_is_a_timeout(fake):
    run = figures('--base-url', fake.url, '--model', 'slow', '--num-prompts', 2, '--random-output-len', 20, '--request-timeout', 0.7, code=1)
    assert run['failures'] == {'timeout': 2} and run['duration'] < 3


def test_retry_after_is_obeyed_when_asked_for(fake):
    arguments = ['--base-url', fake.url, '--model', 'busy-once', '--num-prompts', 2, '--random-output-len', 2]
    fake.refused.clear()
    assert figures(*arguments, '--seed', 1, code=1)['failures'] == {'http_429': 2}
    fake.refused.clear()
    run = figures(*arguments, '--seed', 2, '--max-retries', 1)
    assert run['completed'] == 2 and run['duration'] >= 1


def test_no_more_than_max_concurrency_are_in_flight(fake):
    run = figures('--base-url', fake.url, '--num-prompts', 30, '--random-output-len', 3, '--max-concurrency', 4)
    assert run['completed'] == 30 and run['max_concurrent_requests'] <= 4


def test_requests_are_sent_at_their_times_whatever_the_answers_take(fake):
    fake.seen.clear()
    figures('--base-url', fake.url, '--model', 'slow', '--num-prompts', 5, '--random-output-len', 4, '--request-rate', 5, '--burstiness', 'inf')
    times = [time for time, _, _ in fake.seen]
    assert len(times) == 5 and 0.5 < times[-1] - times[0] < 1.8  # 0.8 s apart; each answer takes 2


def test_a_duration_ends_the_sending(fake):
    run = figures('--base-url', fake.url, '--num-prompts', 1000, '--random-output-len', 1, '--request-rate', 20, '--duration', 1)
    assert 5 < run['completed'] < 60 and run['not_sent'] == 1000 - run['completed']


def test_a_trace_is_sent_with_its_times_lengths_and_models(fake, tmp_path):
    trace = tmp_path / 'trace.csv'
    trace.write_text('Request Time,Model Name,Input Length,Output Length\n00:00:01.0,a,7,3\n00:00:02.0,b,9,2\n00:00:03.0,a,5,1\n')
    fake.seen.clear()
    run = figures('--base-url', fake.url, '--tokenizer', 'words', '--dataset-name', 'trace', '--dataset-path', trace, '--trace-speedup', 10, '--trace-models', 'all')
    assert run['completed'] == 3 and run['total_input_tokens'] == 21 and run['total_output_tokens'] == 6
    assert [(body['model'], body['max_tokens']) for _, body, _ in fake.seen] == [('fine', 3), ('other', 2), ('fine', 1)]
    trace.write_text('Request Time,Model Name,Input Length,Output Length\n00:00:01.0,a,many,3\n')
    bad = bench('--base-url', fake.url, '--dataset-name', 'trace', '--dataset-path', trace)
    assert bad.returncode == 1 and "line 2: column 'Input Length': 'many'" in bad.stderr


def test_key_and_headers_are_sent(fake):
    fake.seen.clear()
    figures('--base-url', fake.url, '--num-prompts', 1, '--random-output-len', 1, '--header', 'X-Team=red', '--extra-body', '{"top_p":0.5}',
            env={'OPENAI_API_KEY': 'sk-1'})
    _, body, headers = fake.seen[0]
    assert headers['Authorization'] == 'Bearer sk-1' and headers['X-Team'] == 'red' and body['top_p'] == 0.5 and body['temperature'] == 0


def test_ctrl_c_ends_the_run_and_still_writes_the_report(fake, tmp_path):
    process = subprocess.Popen([str(BINARY), 'bench', '--base-url', fake.url, '--model', 'slow', '--num-prompts', '200', '--request-rate', '20',
                                '--random-output-len', '2', '--save-result', '--result-dir', str(tmp_path), '--result-filename', 'r.json'],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    time.sleep(3)
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=10)
    assert process.returncode == 130
    run = json.loads((tmp_path / 'r.json').read_text())
    assert run['interrupted'] and run['completed'] > 5 and run['ended_by_interruption'] > 0 and run['not_sent'] > 50
    assert run['failed'] == 0 and run['failures'] == {}, 'who was cut off did not fail'
    assert run['completed'] + run['ended_by_interruption'] + run['not_sent'] == 200
    assert f"{run['completed']} requests of 200 that had ended; {run['ended_by_interruption']} were under way" in errors
    assert 'Successful requests' in out and 'Requests ended by the interruption' in out and 'for example' not in out


def test_ctrl_c_while_warming_up_says_that_nothing_was_measured(fake):
    process = subprocess.Popen([str(BINARY), 'bench', '--base-url', fake.url, '--model', 'slow', '--num-warmups', '1', '--random-output-len', '20',
                                '--tokenizer', 'words'], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    fake.seen.clear()
    assert wait_until(lambda: fake.seen)
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=10)
    assert process.returncode == 130 and out == '' and 'nothing was measured' in errors


@pytest.mark.parametrize('below', ['', '/v1', '/v1/'])
@pytest.mark.parametrize('tokenizer', ['/tokenize', '/v1/tokenize'])
def test_the_tokenizer_is_found_beside_v1_however_the_url_is_written(fake, below, tokenizer):
    fake.tokenizer = tokenizer
    fake.seen.clear()
    run = figures('--base-url', fake.url + below, '--num-prompts', 2, '--random-input-len', 41, '--random-output-len', 1)
    fake.tokenizer = None
    assert run['tokenizer_id'] == fake.url + tokenizer and run['prompt_lengths'] == f'counted by {fake.url}{tokenizer}'
    assert [len(body['prompt'].split()) for _, body, _ in fake.seen] == [20, 20]


def test_an_endpoint_may_be_named_below_the_base_url(fake):
    assert figures('--base-url', fake.url + '/v1', '--endpoint', '/completions', '--num-prompts', 1, '--random-output-len', 1)['completed'] == 1


def test_without_a_tokenizer_it_says_so_and_how_long_prompts_became(fake):
    result = bench('--base-url', fake.url, '--num-prompts', 2, '--random-input-len', 40, '--random-output-len', 1)
    assert result.returncode == 0
    assert f'{fake.url} has no tokenizer to ask (/tokenize answers 404, /v1/tokenize answers 404)' in result.stderr and '--tokenizer' in result.stderr
    assert 'Prompt lengths: approximate, every word as one token' in result.stdout
    assert '40 tokens a prompt were asked for, and the server counted 40' in result.stdout


@pytest.mark.parametrize('flags', [['--report', 'gone/run.html'], ['--save-result', '--result-dir', 'gone'], ['--save-result', '--result-filename', 'gone/r.json']])
def test_a_missing_folder_is_an_error_before_anything_is_sent(fake, tmp_path, flags):
    fake.seen.clear()
    result = subprocess.run([str(BINARY), 'bench', '--base-url', fake.url, *flags], capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert result.returncode == 1 and 'gone' in result.stderr and 'there is no folder' in result.stderr
    assert fake.seen == [] and list(tmp_path.iterdir()) == []


def test_progress_is_shown_on_a_terminal_only(fake):
    arguments = [str(BINARY), 'bench', '--base-url', fake.url, '--model', 'slow', '--num-prompts', '3', '--random-output-len', '2']
    assert '\r' not in subprocess.run(arguments, capture_output=True, text=True).stderr
    master, slave = pty.openpty()
    process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=slave)
    os.close(slave)
    seen = b''
    while process.poll() is None or select.select([master], [], [], 0)[0]:
        if select.select([master], [], [], 0.1)[0]:
            try:
                seen += os.read(master, 65536)
            except OSError:
                break
    os.close(master)
    assert b'[' in seen and b'requests 0/3' in seen and seen.rstrip().endswith(b'\x1b[K')


def test_what_cannot_be_is_said(fake):
    nobody = bench('--base-url', f'http://127.0.0.1:{free_port()}')
    assert nobody.returncode == 1 and 'cannot be reached' in nobody.stderr and 'shoal serve' in nobody.stderr
    for arguments, words in [(['--dataset-name', 'trace'], '--dataset-path'), (['--header', 'x'], 'NAME=VALUE'), (['--header', 'a=b\nc'], 'control character'),
                             (['--percentile-metrics', 'speed'], "'speed'"), (['--extra-body', '[]'], '--extra-body'), (['--metadata', 'x'], 'KEY=VALUE'),
                             (['--request-rate', '0'], '--request-rate'), (['--goodput', 'ttft'], 'ttft:MS'), (['--metric-percentiles', '101'], "'101'"),
                             (['--base-url', 'ftp://x'], 'ftp://x')]:
        result = bench('--base-url', fake.url, *arguments) if '--base-url' not in arguments else bench(*arguments)
        assert result.returncode == 2 and words in result.stderr, (arguments, result.stderr)
